"""The native engine is used where possible, else PyTorch; an engine that was named is used or refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.atomic_files import write_text
from regard.cli import main
from regard.decoding import model_loading as engine
from regard.decoding.model_loading import load_as
from regard.decoding.native import compiled_library as library
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.pytorch_engine import TorchSearch
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError, ModelError
from regard.model_folder import NATIVE, SETTINGS, TOKENIZER, WEIGHTS
from regard.settings.option_fields import dump
from regard.weights import Contents, parameters, write_tensors
from tests.decoding.conftest import CORPUS
from tests.decoding.toys import toy

TEXTS = [source for source, _ in CORPUS][:12]


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_has_accelerator", lambda: False)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library", lambda: "it was not built")


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    """Copies a model folder, so that its packed files can be checked."""
    return Path(shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns(NATIVE)))


def written(contents: Contents, path: Path) -> Path:
    write_text(path / SETTINGS, dump(contents.settings))
    write_text(path / TOKENIZER, contents.vocabularies.to_json())
    write_tensors(path / WEIGHTS, parameters(contents.model))
    return path


def test_native_where_it_can_be(model: Path) -> None:
    assert isinstance(regard.load_as(Translator, model).searcher, NativeSearch)
    assert isinstance(load_as(Translator, model, "cpu", threads=1).searcher, NativeSearch)
    assert isinstance(regard.load_as(Translator, model, engine="torch").searcher, TorchSearch)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "alternatives": 2}, {"temperature": 0.8, "seed": 3}])
def test_both_engines_translate_alike(model: Path, options: dict[str, Any]) -> None:
    ours, theirs = (load_as(Translator, model, engine=name) for name in ("native", "torch"))
    for a, b in zip(ours.translate(TEXTS, **options), theirs.translate(TEXTS, **options), strict=True):
        assert (a.text, a.tokens, a.finished) == (b.text, b.tokens, b.finished)
        assert a.score == pytest.approx(b.score, rel=0, abs=1e-3)
        assert [x.text for x in a.alternatives] == [x.text for x in b.alternatives]
    assert list(ours.stream(TEXTS[0], **options)) == list(theirs.stream(TEXTS[0], **options))


@pytest.mark.parametrize(
    "options", [{"beam": 1, "stop": ["e"]}, {"beam": 3}, {"temperature": 0.8, "repetition_penalty": 1.3}]
)
def test_both_engines_write_alike(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = written(toy("write"), tmp_path / "writer")
    ours, theirs = (load_as(Writer, folder, engine=name) for name in ("native", "torch"))
    assert isinstance(ours.searcher, NativeSearch)
    prompts = ["", "A dog", "The old woman sees a cat in the garden, and it rains and it rains and it rains."]
    for a, b in zip(*(each.write(prompts, max_tokens=30, **options) for each in (ours, theirs)), strict=True):
        assert (a.text, a.tokens, a.finished) == (b.text, b.tokens, b.finished)
    assert list(ours.stream("A dog", max_tokens=30, **options)) == list(
        theirs.stream("A dog", max_tokens=30, **options)
    )
    assert ours.score("A dog reads.") == theirs.score("A dog reads.")


@pytest.mark.usefixtures("no_library")
def test_without_the_library_pytorch_is_used(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(regard.load_as(Translator, model).searcher, TorchSearch)
    asked: list[dict[str, Any]] = [{"engine": "native"}, {"precision": "int8"}]
    for options in asked:
        with pytest.raises(InputError, match=r"native engine.* cannot be used: it was not built"):
            regard.load(model, **options)
    assert not (model / NATIVE).exists()
    with pytest.raises(ModelError, match="native engine is not available: it was not built"):
        library.PackedModel(model)
    assert main(["info", "--system"]) == 0
    assert "PyTorch; the native engine is not available: it was not built" in capsys.readouterr().out


def test_the_system_says_which_engine_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--system"]) == 0
    assert f"decoding engine: native, {library.instructions()}" in capsys.readouterr().out


def test_a_library_that_was_not_built_or_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "HERE", tmp_path)
    assert "no C++17 compiler was available" in str(library.library.__wrapped__())
    (tmp_path / "core.so").write_text("not a library")
    assert "it cannot be loaded" in str(library.library.__wrapped__())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "native", "device": "cuda"}, "the native engine cannot be used: it does not run on cuda"),
        ({"precision": "int8", "engine": "torch"}, "int8, which needs the native engine, cannot be used"),
        ({"precision": "int8", "device": "cuda"}, "int8, which needs the native engine, cannot be used"),
        ({"engine": "abacus"}, "unknown engine abacus: use auto, native or torch"),
        ({"precision": "int4"}, "unknown precision int4: use auto, float32 or int8"),
    ],
)
def test_what_cannot_be_is_refused(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        regard.load(model, **options)


@pytest.mark.parametrize("task", ["fill", "embed"])
def test_other_tasks_are_pytorchs(tmp_path: Path, task: str) -> None:
    folder = written(toy(task), tmp_path / task)
    with pytest.raises(InputError, match=f"native engine cannot be used: it does not support the task {task}"):
        regard.load(folder, engine="native")
    assert not hasattr(regard.load(folder), "searcher")


def test_an_accelerator_is_used_unless_the_engine_is_asked_for(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_has_accelerator", lambda: True)
    assert isinstance(regard.load_as(Translator, model).searcher, TorchSearch)
    assert isinstance(regard.load_as(Translator, model, engine="native").searcher, NativeSearch)
    assert isinstance(regard.load_as(Translator, model, "cpu").searcher, NativeSearch)


def test_int8_is_asked_for_or_what_the_folder_has(model: Path, tmp_path: Path) -> None:
    assert load_as(Translator, model, precision="int8").translate(TEXTS[:2])[0].text
    assert main(["quantize", str(model), "-o", str(tmp_path / "int8")]) == 0
    load_as(Translator, tmp_path / "int8").translate(TEXTS[:1])
    for folder in (model, tmp_path / "int8"):
        assert [path.name.split("-")[0] for path in (folder / NATIVE).iterdir()] == ["int8"]
