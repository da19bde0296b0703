"""Recurrent translators search as Transformers do, and what is not for them is refused in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.atomic_files import write_text
from regard.decoding.pytorch_engine import translator_of
from regard.errors import InputError, SettingsError
from regard.explorer.model_explorer import Explorer
from regard.interop import ctranslate2, huggingface, onnx
from regard.preparation.chosen_settings import resolve
from regard.settings.option_fields import dump
from regard.weights import parameters, write_tensors
from tests.decoding.toys import toy

every_kind = pytest.mark.parametrize("kind", ["lstm", "gru"])
TEXTS = ["a dog runs", "the old dog sees a cat in the garden", "a cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a recurrent network in it."""
    contents, path = toy("translate", kind="lstm"), tmp_path_factory.mktemp("recurrent")
    write_tensors(path / "weights.safetensors", parameters(contents.model))
    write_text(path / "tokenizer.json", contents.vocabularies.to_json())
    write_text(path / "model.toml", dump(contents.settings))
    return path


@every_kind
@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "alternatives": 2}, {"temperature": 0.8, "seed": 3}])
def test_a_text_is_translated_alone_as_with_others(kind: str, attends: bool, options: dict[str, Any]) -> None:
    translator = translator_of(toy("translate", 0.5, kind=kind, attends=attends))
    together = translator.translate(TEXTS, **options)
    for text, found in zip(TEXTS, together, strict=True):
        alone = translator.translate([text], **options)[0]
        assert (alone.text, alone.tokens) == (found.text, found.tokens)
        assert alone.score == pytest.approx(found.score, rel=1e-4)
        assert [each.text for each in alone.alternatives] == [each.text for each in found.alternatives]


@every_kind
def test_a_beam_of_one_is_greedy_and_streams(kind: str) -> None:
    translator = translator_of(toy("translate", 0.5, kind=kind))
    assert "".join(translator.stream(TEXTS[1])) == translator(TEXTS[1], beam=1)


def test_the_alignment_is_that_of_its_attention() -> None:
    (found,) = translator_of(toy("translate", kind="gru")).translate(TEXTS[:1], alignment=True)
    assert len(found.alignment) == len(found.token_log_probabilities)
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found.alignment)


def test_a_folder_is_opened_by_pytorch_and_found_again_in_int8(folder: Path, tmp_path: Path) -> None:
    from regard.interop.int8_folder import quantize_folder

    whole = regard.load_as(regard.Translator, folder)
    assert type(whole.searcher).__name__ == "TorchSearch"
    quantize_folder(folder, tmp_path / "int8")
    assert regard.load_as(regard.Translator, tmp_path / "int8").translate(TEXTS)[0].text


@pytest.mark.parametrize("how", [{"engine": "native"}, {"precision": "int8"}])
def test_the_native_engine_refuses_it(folder: Path, how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be used: it does not support LSTM layers"):
        regard.load(folder, **how)


@pytest.mark.parametrize("library", [ctranslate2, huggingface, onnx])
def test_no_other_program_is_given_it(folder: Path, library: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"regard export needs a Transformer, .*\(model.kind = lstm\)"):
        library.export_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_explorer_refuses_it(folder: Path) -> None:
    with pytest.raises(InputError, match="regard look needs a Transformer"):
        Explorer.open(folder, "cpu")
    with pytest.raises(InputError, match="regard look needs a Transformer"):
        regard.look(regard.load(folder), "a dog")


def test_who_does_not_look_has_no_alignment() -> None:
    with pytest.raises(InputError, match="does not attend to the source"):
        translator_of(toy("translate", kind="lstm", attends=False)).translate(TEXTS, alignment=True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"task": "write", "model": {"kind": "lstm"}}, "does not support task = write"),
        ({"task": "fill", "model": {"kind": "gru"}}, "does not support task = fill"),
        ({"model": {"kind": "lstm"}, "training": {"recompute": True}}, "does not support training.recompute"),
        ({"model": {"kind": "lstm"}, "training": {"adapters": 4}}, "does not support training.adapters"),
        ({"model": {"kind": "gru"}, "training": {"parallel": "fsdp"}}, "does not support training.parallel = fsdp"),
        ({"model": {"kind": "gru", "width": 15, "heads": 3, "positions": "none"}}, "needs an even model.width, not 15"),
        ({"model": {"attends": False}}, "model.attends = false needs a recurrent network"),
        ({"model": {"kind": "rnn"}}, "model.kind must be one of transformer, lstm, gru"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        resolve(settings)
