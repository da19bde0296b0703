"""What is passed from Python where it cannot be used is refused, by what was given and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.argument_checks import kind_of
from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.decoding.writer import Writer
from regard.errors import InputError, RegardError
from tests.decoding.toys import toy

TRANSLATOR, WRITER = translator_of(toy("translate")), writer_of(toy("write"))
FILLER, EMBEDDER = Filler(toy("fill")), Embedder(toy("embed"))
CLASSIFIER = Classifier(toy("classify", data={"labels": ["a", "b"]}))
TAGGER = Classifier(toy("classify", data={"labels": ["a", "b"], "carrier": "word"}))
LINES, GIVEN = ["A dog."], ["given.en", "given.de"]
Call = Callable[[Any], object]


def observe(model: Any, edits: Any = None) -> None:
    with regard.observe(model, edits):
        pass


NOT_A_TEXT = [None, 3, b"A dog.", Path("a.txt"), ["A dog."], {"A dog.": 1}]
TAKE_A_TEXT: dict[str, Call] = {
    "translator": TRANSLATOR,
    "stream": lambda given: list(TRANSLATOR.stream(given)),
    "writer": WRITER,
    "writer.stream": lambda given: list(WRITER.stream(given)),
    "writer.score": WRITER.score,
    "filler": FILLER,
    "fill": FILLER.fill,
    "classifier": CLASSIFIER,
    "tagger": TAGGER,
    "nearest": lambda given: EMBEDDER.nearest(given, np.zeros((1, 16), np.float32)),
    "look": lambda given: regard.look(TRANSLATOR, given),
}
NOT_TEXTS = ["A dog.", None, 3, b"A dog.", Path("a.txt"), {"A dog.": 1}, [None], ["A dog.", b"x"], [["A dog."]]]
TAKE_TEXTS: dict[str, Call] = {
    "translate": TRANSLATOR.translate,
    "translate_stream": lambda given: list(TRANSLATOR.translate_stream(given)),
    "write": WRITER.write,
    "classify": CLASSIFIER.classify,
    "label_words": TAGGER.label_words,
    "embedder": EMBEDDER,
    "embed": EMBEDDER.embed,
    "score, hypotheses": lambda given: regard.score(given, LINES, resamples=0),
    "score, references": lambda given: regard.score(LINES, given, resamples=0),
    "compare, baseline": lambda given: regard.compare(given, LINES, LINES),
    "compare, system": lambda given: regard.compare(LINES, given, LINES),
    "compare, references": lambda given: regard.compare(LINES, LINES, given),
}
NOT_A_PATH = [None, 3, b"runs", ["runs"], ""]
TAKE_A_PATH: dict[str, Call] = {
    "load": regard.load,
    "load_as": lambda given: regard.load_as(Writer, given),
    "train": lambda given: regard.train(GIVEN, given),
    "train, settings": lambda given: regard.train(GIVEN, "out", settings_file=given),
    "train, start": lambda given: regard.train(GIVEN, "out", start=given),
    "train, reverse": lambda given: regard.train(GIVEN, "out", reverse=given),
    "resume": regard.resume,
    "distill": lambda given: regard.distill(given, GIVEN, "out"),
    "distill, output": lambda given: regard.distill("big", GIVEN, given),
    "look": lambda given: regard.look(given, "A dog."),
}
OPTIONAL = [TAKE_A_PATH[f"train, {name}"] for name in ("settings", "start", "reverse")]
NOT_FILES = [None, 3, b"given.en", {"given.en": 1}, "", [""], [None], [["given.en"]]]
TAKE_FILES: dict[str, Call] = {
    "train": lambda given: regard.train(given, "out"),
    "train, dev": lambda given: regard.train(GIVEN, "out", dev=given),
    "train, test": lambda given: regard.train(GIVEN, "out", test=given),
    "train, back_translate": lambda given: regard.train(GIVEN, "out", back_translate=given),
    "distill": lambda given: regard.distill("big", given, "out"),
    "distill, dev": lambda given: regard.distill("big", GIVEN, "out", dev=given),
    "distill, test": lambda given: regard.distill("big", GIVEN, "out", test=given),
}
OTHERS: list[Callable[[], object]] = [
    lambda: TRANSLATOR("A dog.", source=3),  # type: ignore[arg-type]
    lambda: TRANSLATOR("A dog.", target=["de"]),  # type: ignore[arg-type]
    lambda: TRANSLATOR("A dog.", beam="wide"),
    lambda: TRANSLATOR.translate(LINES, glossary="terms.csv"),  # type: ignore[arg-type]
    lambda: TRANSLATOR.translate(LINES, constrain="dog"),  # type: ignore[arg-type]
    lambda: WRITER.write(LINES, stop=[3]),  # type: ignore[list-item]
    lambda: WRITER.write(LINES, stop=3),  # type: ignore[arg-type]
    lambda: FILLER.fill("A [MASK].", "3"),  # type: ignore[arg-type]
    lambda: CLASSIFIER(("a", "b", "c")),  # type: ignore[arg-type]
    lambda: CLASSIFIER.classify([("a", 3)]),  # type: ignore[list-item]
    lambda: TAGGER.label_words(["the cat"]),
    lambda: EMBEDDER.nearest("A dog.", [[0.0]]),  # type: ignore[arg-type]
    lambda: EMBEDDER.nearest("A dog.", np.zeros((2, 3), np.float32)),
    lambda: EMBEDDER.embed(LINES, pooling="most"),
    lambda: regard.load("runs", 3),  # type: ignore[arg-type]
    lambda: regard.load_as("runs", Writer),  # type: ignore[arg-type]
    lambda: regard.train(GIVEN, "out", overrides="model.width"),  # type: ignore[arg-type]
    lambda: regard.train(GIVEN, "out", overrides={3: 4}),  # type: ignore[dict-item]
    lambda: regard.score(LINES, LINES, resamples="many"),  # type: ignore[arg-type]
    lambda: regard.score(LINES, LINES, language=3),  # type: ignore[arg-type]
    lambda: regard.look("runs", "A dog.", patch=3),
    lambda: regard.look(3, "A dog."),  # type: ignore[arg-type]
    lambda: observe(TRANSLATOR),
    lambda: observe(TRANSLATOR.model, ["decoder"]),
    lambda: observe(TRANSLATOR.model, {"decoder": 3}),
]


def cases(calls: dict[str, Call], values: list[Any]) -> list[Any]:
    return [pytest.param(call, value, id=f"{name}-{value}") for name, call in calls.items() for value in values]


@pytest.mark.parametrize(("call", "given"), cases(TAKE_A_TEXT, NOT_A_TEXT))
def test_what_is_not_a_text_is_refused(call: Call, given: Any) -> None:
    with pytest.raises(InputError, match=rf"takes .*(text|str).*, not {kind_of(given)}"):
        call(given)


@pytest.mark.parametrize(("call", "given"), cases(TAKE_TEXTS, NOT_TEXTS))
def test_what_is_not_a_list_of_texts_is_refused(call: Call, given: Any) -> None:
    if call == TAGGER.label_words and given == [["A dog."]]:
        given = [["A dog.", 3]]
    with pytest.raises(InputError, match=r"(takes|must be) .*, not "):
        call(given)


@pytest.mark.parametrize(("call", "given"), cases(TAKE_A_PATH, NOT_A_PATH))
def test_what_is_not_a_path_is_refused(call: Call, given: Any) -> None:
    if given is None and call in OPTIONAL:
        return
    with pytest.raises(InputError, match="folder"):
        call(given)


@pytest.mark.parametrize(("call", "given"), cases(TAKE_FILES, NOT_FILES))
def test_what_is_not_a_file_is_refused_before_the_first_event(call: Call, given: Any) -> None:
    with pytest.raises(InputError, match=r"takes (files|the path of a file)"):
        call(given)


@pytest.mark.parametrize("call", OTHERS)
def test_other_arguments_of_the_wrong_kind_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(RegardError):
        call()


def test_threads_are_at_least_one(tmp_path: Path) -> None:
    from regard.demo import GLASS

    for wrong in (0, -1, "2"):
        with pytest.raises(InputError, match="threads"):
            regard.load(GLASS, threads=wrong)  # type: ignore[arg-type]


def test_any_iterable_of_texts_is_taken() -> None:
    def texts() -> Any:
        return (text for text in ["A dog sings.", "She reads."])

    assert len(TRANSLATOR.translate(texts())) == len(list(TRANSLATOR.translate_stream(texts()))) == 2
    assert len(WRITER.write(texts(), max_tokens=2)) == len(CLASSIFIER.classify(texts())) == len(EMBEDDER(texts())) == 2
    assert len(CLASSIFIER.classify([("A dog", "sings"), "She"])) == 2
    assert len(TAGGER.label_words(text.split() for text in texts())) == 2
    assert regard.score(texts(), texts(), resamples=0)[0].value == pytest.approx(100)
    assert regard.compare(texts(), texts(), texts(), resamples=40)[0].difference == 0


def test_a_stop_string_may_be_given_alone() -> None:
    whole = WRITER("A dog", max_tokens=12, temperature=0)
    end = whole[3:5]
    found = WRITER.write(["A dog"], stop=end, max_tokens=12, temperature=0)[0]
    assert found == WRITER.write(["A dog"], stop=[end], max_tokens=12, temperature=0)[0]
    assert found.text == whole[: whole.index(end)]
    assert "".join(WRITER.stream("A dog", stop=end, max_tokens=12, temperature=0)) == found.text


@pytest.mark.parametrize("kind_of_path", [str, Path])
def test_one_corpus_file_may_be_given_alone(kind_of_path: Callable[[str], Any], tmp_path: Path) -> None:
    """Not letter by letter: "/" would be the root of the file system."""
    (tmp_path / "a.tsv").write_text("".join(f"dog {n}\tHund {n}\n" for n in range(60)), encoding="utf-8")
    overrides = {"tokenizer.vocabulary": 300, "model.width": 8, "model.hidden": 8, "model.heads": 2}
    file = kind_of_path(str(tmp_path / "a.tsv"))
    events = list(regard.train(file, tmp_path / "run", dev=file, overrides=overrides, prepare_only=True))
    assert events
    assert (tmp_path / "run" / "training").is_dir()
