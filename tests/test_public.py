"""What can be called from Python: files and folders are named by a str or by a Path."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_type

import pytest

import regard
from regard import Classifier, Embedder, Filler, Translation, Translator, Writer, weights
from regard.decoding.pytorch_engine import writer_of
from regard.demo import GLASS
from regard.faithful.glossary import Glossary
from regard.files.formats import format_by_suffix as files
from regard.interop import ctranslate2, huggingface, int8_folder as quantized, llama2c, onnx
from regard.jobs.shortlist_learning import learn_shortlist
from regard.preparation import chosen_settings as configuration
from regard.training.events import Training
from tests.decoding.toys import toy

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


def test_dir_and_help_show_the_public_names_without_torch() -> None:
    program = "import regard, sys; print(*dir(regard)); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in done.stdout.split() if not name.startswith("_")] == sorted(regard.__all__)
    shown = pydoc.plain(pydoc.render_doc(regard))
    for name in regard.__all__:
        assert f"class {name}(" in shown or f"    {name}(" in shown, name


@pytest.mark.parametrize("name", regard.__all__)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    written = getattr(regard, name).__doc__
    assert ">>> " in written
    assert written.partition("\n")[0].endswith(".")


def test_load_has_a_type(tmp_path: Path) -> None:
    """These lines are for the type checker, which the style check runs; they run, too."""
    assert_type(regard.load(GLASS), Translator | Writer | Filler | Classifier | Embedder)
    translator = assert_type(regard.load_as(Translator, GLASS), Translator)
    assert_type(translator("I sing."), str)
    assert_type(translator.translate(["I sing."])[0], Translation)
    assert_type(translator.translate(["I sing."])[0].score, float)
    events = assert_type(regard.train([tmp_path / "a.tsv"], tmp_path / "run"), Training)
    assert "not started; loop over it" in repr(events)


def test_what_is_printed_says_what_it_is(tmp_path: Path) -> None:
    for engine, words in {"native": "native engine, float32", "torch": "PyTorch on cpu, float32"}.items():
        translator = regard.load_as(Translator, GLASS, "cpu", engine=engine, threads=2)
        assert repr(translator).startswith(f"<Translator {GLASS}: en → fr, {words}")
        assert f"{sum(each.numel() for each in translator.model.parameters()):,} parameters" in repr(translator)
        assert ("2 threads" in repr(translator)) == (engine == "native")
    assert repr(writer_of(toy("write"))).startswith("<Writer without a folder: PyTorch on cpu, float32, ")
    assert repr(Embedder(toy("embed"))).startswith("<Embedder without a folder: PyTorch on cpu, ")
    labels = Classifier(toy("classify", data={"labels": ["a", "b"]}))
    assert repr(labels).startswith("<Classifier without a folder: 2 labels, PyTorch on cpu, ")
    best = translator.translate(["I sing."], alignment=True)[0]
    assert repr(best).startswith(f"Translation(text={best.text!r}, score=")
    assert len(repr(best)) < 250
    run = regard.look(translator, "I sing.")
    assert repr(run) == f"<Run of translator: {len(run.names())} tensors, output {run.answer['text']!r}>"
    with regard.observe(translator.model) as trace:
        assert repr(trace) == "<Trace of 0 tensors: nothing has run>"
        translator("I sing.")
    assert repr(trace).startswith(f"<Trace of {len(trace)} tensors: {next(iter(trace))}, ")


def test_an_event_of_a_training_is_in_its_repr(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"dog {n}\tHund {n}\n" for n in range(60)), encoding="utf-8")
    events = regard.train(tmp_path / "a.tsv", tmp_path / "run", prepare_only=True)
    assert repr(events) == f"<Training of {tmp_path / 'run'}: not started; loop over it to train>"
    assert not (tmp_path / "run").exists()
    first = next(events)
    assert repr(events) == f"<Training of {tmp_path / 'run'}: {first!r}>"
    events.close()
    assert list(events) == []


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_whatever_the_engine_a_translation_can_be_observed(engine: str) -> None:
    translator = regard.load_as(Translator, GLASS, "cpu", engine=engine)
    expected = translator("I sing.", beam=1)
    for ask in (lambda: translator("I sing.", beam=1), lambda: "".join(translator.stream("I sing."))):
        with regard.observe(translator.model) as trace:
            assert ask() == expected
        weights = trace["decoder.layers.0.cross_attention.weights"]
        assert weights.axes == ("batch", "head", "query:target", "key:source")
        assert len(trace) > 50


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
