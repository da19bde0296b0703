"""What can be called from Python: files and folders are named by a str or by a Path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import configuration, weights
from regard.demo.glass import GLASS
from regard.interop import ctranslate2, huggingface, llama2c, onnx, quantized
from regard.text.formats import files
from regard.text.glossary import Glossary
from regard.training.lexicon import learn_shortlist

BEYOND: list[Callable[..., Any]] = [  # told of in the documentation, beside the public names
    configuration.load,
    configuration.gather,
    weights.read_folder,
    ctranslate2.export_model,
    huggingface.export_model,
    huggingface.import_model,
    llama2c.import_model,
    onnx.export_model,
    quantized.quantize_folder,
    files.open_document,
    Glossary.read,
    learn_shortlist,
]


def public() -> Iterator[Callable[..., Any]]:
    """The functions of the package, and the methods of its classes."""
    for name in regard.__all__:
        found = getattr(regard, name)
        if inspect.isclass(found):
            members: list[tuple[str, Any]] = inspect.getmembers(found, callable)
            yield from (each for key, each in members if not key.startswith("_"))
        else:
            yield found
    yield from BEYOND


@pytest.mark.parametrize("function", list(public()), ids=lambda each: getattr(each, "__qualname__", str(each)))
def test_what_takes_a_path_takes_a_str(function: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of an exception, in C
        return
    for parameter in parameters:
        kinds = str(parameter.annotation)
        assert "Path" not in kinds or "str" in kinds, f"{parameter.name}: {kinds}"


def test_a_file_of_settings_is_named_by_a_str(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[training]\nsteps = 3\nwarmup = 1\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("one two three\n" * 50, encoding="utf-8")
    assert configuration.load(str(tmp_path / "mine.toml")).training.steps == 3
    overrides = {"task": "write", "tokenizer.vocabulary": 300, "model.width": 8, "model.hidden": 8, "model.heads": 2}
    events = regard.train(
        [str(tmp_path / "text.txt")],
        str(tmp_path / "run"),
        settings_file=str(tmp_path / "mine.toml"),
        overrides=overrides,
        prepare_only=True,
    )
    assert list(events)
    assert "steps = 3" in (tmp_path / "run" / "model.toml").read_text(encoding="utf-8")


def test_a_model_and_a_document_are_named_by_a_str(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n", encoding="utf-8")
    assert list(files.open_document(str(tmp_path / "a.md"), "en", "fr").units)
    quantized.quantize_folder(str(GLASS), str(tmp_path / "small"))
    assert weights.read_folder(str(tmp_path / "small")).settings.task == "translate"
    notes = huggingface.export_model(str(GLASS), str(tmp_path / "theirs"))
    assert isinstance(notes, list)
