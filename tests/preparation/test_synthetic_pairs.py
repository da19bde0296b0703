"""Synthetic pairs are complete however often a run is stopped, are tagged, and are never held out."""

from __future__ import annotations

import gzip
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError
from regard.files.corpus_report import Report
from regard.jobs.resumable_shards import ThisProcess
from regard.model_folder import read_settings
from regard.preparation import synthetic_pairs as synthetic
from regard.preparation.synthetic_pairs import (
    SyntheticState,
    TranslateSentences,
    find_fault,
    read_sentences,
    translate_sentences,
)
from regard.preparation.task_preparation import TrainingRequest
from regard.preparation.train_and_resume import resume, train
from regard.settings import DataSettings
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Examples
from regard.training.events import Event, Finished, Note, Prepared, Progress, Stage
from tests.training.corpora import SMALL, write_reversals
from tests.training.fakes import Turning, translation

LANGUAGES = {"data.source": "forth", "data.target": "back"}
BRIEF = {**SMALL, **LANGUAGES, "training.steps": 6, "training.evaluate_every": 3, "training.warmup": 2}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "CHUNK", 20)
    monkeypatch.setattr(synthetic, "PIECE", 8)


def rows(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choice("0123456789") for _ in range(dice.randint(2, 8))) for _ in range(count)]


# Making


def translating(
    folder: Path,
    texts: list[str],
    state: SyntheticState,
    stop: threading.Event | None = None,
    back: bool = True,
    translator: Turning | None = None,
) -> Iterator[Event]:
    sentences = (Pair(text, text, Location("mono", number)) for number, text in enumerate(texts, 1))
    work = TranslateSentences(
        path="", digest="none", device="cpu", back=back, max_characters=DataSettings().max_characters
    )
    executor = ThisProcess(work.start_with(translator or Turning()))  # type: ignore[arg-type]
    return translate_sentences(folder, sentences, state, work, stop or threading.Event(), executor)


def make(folder: Path, texts: list[str], back: bool = True) -> SyntheticState:
    state = SyntheticState(len(texts))
    list(translating(folder, texts, state, back=back))
    return state


@pytest.mark.parametrize("back", [False, True])
def test_pairs_have_the_order_of_the_text(tmp_path: Path, back: bool) -> None:
    texts = rows(50, seed=1)
    make(tmp_path, texts, back)
    found = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()]
    turned = [" ".join(reversed(text.split())) for text in texts]
    assert [pair[::-1] if back else pair for pair in found] == [list(pair) for pair in zip(texts, turned, strict=True)]


def test_progress_is_reported_from_zero_to_all(tmp_path: Path) -> None:
    events = list(translating(tmp_path, rows(50, seed=1), SyntheticState(50)))
    stages = [event for event in events if isinstance(event, Stage)]
    assert {(stage.name, stage.total) for stage in stages} == {("translating", 50)}
    done = [stage.done for stage in stages]
    assert (done[0], done[-1]) == (0, 50)
    assert all(0 <= after - before <= 8 for before, after in pairwise(done))


def test_useless_translations_are_counted_with_their_places(tmp_path: Path) -> None:
    long = " ".join("1" * 40)
    state = make(tmp_path, ["1 2", "silent", "endless", "bell", "half", long, "3 4"])
    assert (tmp_path / "pairs.tsv").read_text() == "2 1\t1 2\n4 3\t3 4\n"
    assert state.lines() == [
        "7 sentences translated, 2 kept",
        "1 left out: the translation is empty (mono:2)",
        "1 left out: the translation does not end (mono:3)",
        "2 left out: invalid characters in the translation (mono:4, mono:5)",
        "1 left out: too long for the model (mono:6)",
    ]
    assert SyntheticState.load(tmp_path) == state


@pytest.mark.parametrize(
    ("text", "found", "fault"),
    [
        ("a", "b" * 29, None),
        ("a", "b" * 30, "far longer or shorter than its translation"),
        ("a" * 400, "b" * 40, "far longer or shorter than its translation"),
        ("a" * 400, "b" * 50, None),
        ("a" * 1500, "b" * 2001, "the translation is longer than data.max_characters"),
        ("\N{REPLACEMENT CHARACTER}", "half", None),  # it was there before
        ("a", " \t ", "the translation is empty"),
    ],
)
def test_judging(text: str, found: str, fault: str | None) -> None:
    assert find_fault(text, translation(found), DataSettings().max_characters) == fault


class Killed(BaseException):
    """Ends a run without any cleaning up, like a kill."""


def killed_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Ends the next run when it writes something to the disk for the nth time."""
    count, real = 0, os.fsync

    def fsync(handle: Any) -> None:
        nonlocal count
        count += 1
        if count == moment:
            raise Killed
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("moment", range(1, 17))
def test_killed_while_writing_the_pairs_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    texts = [*rows(50, seed=1), "silent"]
    undisturbed = make(tmp_path / "a", texts)
    with monkeypatch.context() as patch:
        killed_at(patch, moment)
        with pytest.raises(Killed):
            make(tmp_path / "b", texts)
    state = SyntheticState.load(tmp_path / "b") or SyntheticState(len(texts))
    translator = Turning()
    list(translating(tmp_path / "b", texts, state, translator=translator))
    assert (tmp_path / "b" / "pairs.tsv").read_bytes() == (tmp_path / "a" / "pairs.tsv").read_bytes()
    assert state == undisturbed
    assert len(translator.asked) == max(len(texts) - 20 * (moment // 4), 0)  # finished shards are not made again


def test_unfinished_pairs_of_an_earlier_version_are_made_again(tmp_path: Path) -> None:
    texts = rows(50, seed=1)
    make(tmp_path / "a", texts)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "pairs.tsv").write_text("half of\tthe pai")
    old = {"texts": 50, "done": 20, "size": 8, "report": asdict(Report(read=20, kept=1))}
    (tmp_path / "b" / "state.json").write_text(json.dumps(old))
    state = SyntheticState.load(tmp_path / "b")
    assert state
    assert not state.complete
    list(translating(tmp_path / "b", texts, state))
    assert (tmp_path / "b" / "pairs.tsv").read_bytes() == (tmp_path / "a" / "pairs.tsv").read_bytes()
    assert SyntheticState.load(tmp_path / "b") == SyntheticState.load(tmp_path / "a")


@pytest.mark.parametrize("moment", [1, 3, 4, 5, 9])
def test_stopped_between_two_looks_the_pairs_are_the_same(tmp_path: Path, moment: int) -> None:
    texts, stop = rows(50, seed=1), threading.Event()
    make(tmp_path / "a", texts)
    for number, _ in enumerate(translating(tmp_path / "b", texts, SyntheticState(50), stop), 1):
        if number == moment:
            stop.set()
    state = SyntheticState.load(tmp_path / "b") or SyntheticState(50)
    assert not state.complete
    list(translating(tmp_path / "b", texts, state))
    assert (tmp_path / "b" / "pairs.tsv").read_bytes() == (tmp_path / "a" / "pairs.tsv").read_bytes()


# Reading


def test_text_is_cleaned_as_a_corpus_is(tmp_path: Path) -> None:
    path = tmp_path / "mono.de.gz"
    path.write_bytes(gzip.compress(f" eins\n\nzwei\a\n{'lang' * 600}\nCafe\u0301\tdrei\r\n".encode()))
    report = Report()
    found = list(read_sentences(TrainingRequest([], {}, "cpu", texts=[str(path)]), DataSettings(), report))
    assert [pair.source for pair in found] == ["eins", "Café drei"]
    assert report.lines() == [
        "5 sentences read, 2 kept",
        f"1 left out: blank ({path}:2)",
        f"1 left out: control characters in the text ({path}:3)",
        f"1 left out: a side is longer than data.max_characters ({path}:4)",
    ]


def test_the_sources_of_a_corpus_are_read_for_a_teacher(tmp_path: Path) -> None:
    files = [str(path) for path in write_reversals(tmp_path, 5)]
    request = TrainingRequest(files, {}, "cpu", teacher="t")
    found = [pair.source for pair in read_sentences(request, DataSettings(), Report())]
    assert found == Path(files[0]).read_text().splitlines()
    alone = TrainingRequest(files[:1], {}, "cpu", teacher="t")
    assert [pair.source for pair in read_sentences(alone, DataSettings(), Report())] == found


# Whole runs


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    return write_reversals(tmp_path, 120)


@pytest.fixture
def mono(tmp_path: Path) -> Path:
    return write_text(tmp_path)


def write_text(folder: Path) -> Path:
    path = folder / "mono.back"
    path.write_text("".join(f"{row}\n" for row in rows(70, seed=5)))
    return path


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the trained model that translates back by a fake."""
    monkeypatch.setattr(synthetic, "load_as", lambda *_: Turning())


def texts_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


def sources_of(folder: Path) -> tuple[list[list[int]], Vocabularies]:
    """Returns the source tokens of the training pairs."""
    examples = Examples(folder / "training" / "train")
    vocabularies = Vocabularies.load(folder / "tokenizer.json")
    return [examples.pair(row)[0].tolist() for row in range(len(examples))], vocabularies


@pytest.mark.usefixtures("turning")
def test_a_run_with_back_translation(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    events = list(train(corpus, tmp_path / "run", back_translate=[mono], overrides=BRIEF))
    assert isinstance(events[-1], Finished)
    assert events[-1].complete
    assert sum(isinstance(event, Finished) for event in events) == 1
    assert [event.step for event in events if isinstance(event, Progress)] == [*range(1, 7), *range(1, 7)]
    messages = texts_of(events)
    assert "to be translated: 70 sentences read, 70 kept" in messages
    assert "First step: train the model that translates back, back → forth." in messages
    assert "The model that translates back is trained: all 6 steps are done." in messages
    assert "synthetic: 70 sentences translated, 70 kept" in messages

    reverse = tmp_path / "run" / "training" / "reverse"
    data = read_settings(reverse).data
    assert (data.source, data.target, read_settings(reverse).tokenizer.tags) == ("back", "forth", ())
    assert not (reverse / "training").exists()
    assert "70 synthetic pairs: mono.back translated back by the model in training/reverse" in (
        (tmp_path / "run" / "card.md").read_text()
    )

    sources, vocabularies = sources_of(tmp_path / "run")
    tag = vocabularies.source.tags["synthetic"]
    assert read_settings(tmp_path / "run").tokenizer.tags == ("synthetic",)
    tagged, real = [ids for ids in sources if ids[0] == tag], [ids for ids in sources if ids[0] != tag]
    assert not [ids for ids in real if tag in ids]
    turned = [" ".join(reversed(line.split())) for line in mono.read_text().splitlines()]
    assert sorted(vocabularies.source.decode(ids) for ids in tagged) == sorted(turned)
    dev = [json.loads(line) for line in (tmp_path / "run" / "training" / "dev.jsonl").read_text().splitlines()]
    held = {pair["source"] for pair in dev}
    forth = [line for line in corpus[0].read_text().splitlines() if line not in held]
    assert sorted(vocabularies.source.decode(ids) for ids in real) == sorted(forth)


@pytest.mark.usefixtures("turning")
def test_both_directions_hold_out_the_same_pairs(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    events = train(corpus, tmp_path / "run", back_translate=[mono], overrides=BRIEF)
    held: list[list[dict[str, str]]] = []
    for event in events:
        if isinstance(event, Prepared):
            folder = tmp_path / "run" / ("training" if held else "training.new/reverse/training")
            held.append([json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()])
    back, forth = held
    assert [(pair["target"], pair["source"]) for pair in back] == [(pair["source"], pair["target"]) for pair in forth]


@pytest.mark.parametrize("form", ["tsv", "jsonl", "languages"])
@pytest.mark.usefixtures("turning")
def test_a_corpus_in_one_file_can_be_swapped(corpus: list[Path], mono: Path, tmp_path: Path, form: str) -> None:
    lines = zip(*(path.read_text().splitlines() for path in corpus), strict=True)
    names = ("source", "target") if form == "jsonl" else ("forth", "back")
    file = tmp_path / f"corpus.{'tsv' if form == 'tsv' else 'jsonl'}"
    written = ["\t".join(pair) if form == "tsv" else json.dumps(dict(zip(names, pair, strict=True))) for pair in lines]
    file.write_text("".join(f"{line}\n" for line in written))
    for event in train([file], tmp_path / "run", back_translate=[mono], overrides=BRIEF):
        if isinstance(event, Prepared):
            break
    examples = Examples(tmp_path / "run/training.new/reverse/training/train")
    vocabulary = Vocabularies.load(tmp_path / "run/training.new/reverse/tokenizer.json").source
    found = {vocabulary.decode(examples.pair(row)[0].tolist()) for row in range(len(examples))}
    assert found <= set(corpus[1].read_text().splitlines())


@pytest.mark.usefixtures("turning")
def test_held_out_pairs_are_not_trained_on(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    """Texts that are dev or test targets, or whose translations are dev sources, are left out."""
    dev, test = tmp_path / "dev.tsv", tmp_path / "test.tsv"
    dev.write_text("x 1 2\ty 3 4\nz 7 7\tw\n")
    test.write_text("v 5\tu 6\n")
    mono.write_text(mono.read_text() + "y 3 4\nu 6\n7 7 z\n")
    events = list(train(corpus, tmp_path / "run", dev=[dev], test=[test], back_translate=[mono], overrides=BRIEF))
    assert "synthetic: 3 pairs left out: in the dev or test set" in texts_of(events)
    sources, vocabularies = sources_of(tmp_path / "run")
    found = {vocabularies.source.decode(ids) for ids in sources}
    assert not found & {"4 3 y", "6 u", "z 7 7"}
    assert "3 pairs left out: in the dev or test set" in (tmp_path / "run" / "card.md").read_text()


@pytest.mark.usefixtures("turning")
def test_real_pairs_are_repeated_beside_many_others(mono: Path, tmp_path: Path) -> None:
    corpus = write_reversals(tmp_path, 12)
    events = list(train(corpus, tmp_path / "run", back_translate=[mono], overrides={**BRIEF, "data.dev_pairs": 2}))
    assert "synthetic: each of the 10 real pairs is repeated 2 times" in texts_of(events)
    prepared = [event for event in events if isinstance(event, Prepared)]
    assert [event.examples for event in prepared] == [10, 90]
    assert prepared[1].reason.startswith("80 pairs")


# Stopped and resumed


def at_stage(name: str, number: int) -> Callable[[list[Event]], bool]:
    return lambda events: sum(isinstance(e, Stage) and e.name.startswith(name) for e in events) == number


def at_step(number: int) -> Callable[[list[Event]], bool]:
    return lambda events: sum(isinstance(event, Progress) for event in events) == number


MOMENTS = {
    "reading the text": at_stage("reading the text to translate", 1),
    "preparing the reverse": at_stage("encoding", 1),
    "training the reverse": at_step(2),
    "after an evaluation of the reverse": at_step(4),
    "the last step of the reverse": at_step(6),
    "translating the first": at_stage("translating", 1),
    "translating more": at_stage("translating", 7),
    "translating the last": at_stage("translating", 15),
    "preparing": at_stage("encoding: synthetic", 1),
    "training": at_step(8),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "CHUNK", 20)
        patch.setattr(synthetic, "PIECE", 8)
        patch.setattr(synthetic, "load_as", lambda *_: Turning())
        corpus, mono = write_reversals(folder, 120), write_text(folder)
        finish(train(corpus, folder / "run", back_translate=[mono], overrides=BRIEF))
    return result(folder / "run")


def finish(events: Iterator[Event]) -> None:
    assert isinstance(list(events)[-1], Finished)


def result(folder: Path) -> list[bytes]:
    names = ("weights.safetensors", "training/synthetic/pairs.tsv", "training/reverse/weights.safetensors")
    return [(folder / name).read_bytes() for name in names]


@pytest.mark.parametrize(
    ("moment", "killed"),  # what prepares runs in a thread, which outlives a generator that is given up
    [(moment, killed) for moment in MOMENTS for killed in (False, True) if not (killed and "preparing" in moment)],
)
@pytest.mark.usefixtures("turning")
def test_a_run_continues_from_every_stage(
    corpus: list[Path], mono: Path, undisturbed: list[bytes], tmp_path: Path, moment: str, killed: bool
) -> None:
    stop, seen = threading.Event(), list[Event]()
    for event in train(corpus, tmp_path / "run", back_translate=[mono], overrides=BRIEF, stop=stop):
        seen.append(event)
        if MOMENTS[moment](seen):
            if killed:
                break
            stop.set()
    else:
        assert isinstance(seen[-1], Finished)
        assert not seen[-1].complete
    with pytest.raises(ModelError, match="continue with regard train --resume"):
        finish(train(corpus, tmp_path / "run", overrides=BRIEF))
    finish(resume(tmp_path / "run"))
    assert result(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("moment", [1, 3, 6, 9, 12, 13])
@pytest.mark.usefixtures("turning")
def test_killed_while_preparing_nothing_is_made_again(
    corpus: list[Path],
    mono: Path,
    undisturbed: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: int,
) -> None:
    with monkeypatch.context() as patch:
        for event in (running := train(corpus, tmp_path / "run", back_translate=[mono], overrides=BRIEF)):
            if event == Note("synthetic: 70 sentences translated, 70 kept"):
                break
        killed_at(patch, moment)
        with pytest.raises(Killed):
            list(running)
    events = list(resume(tmp_path / "run"))
    assert not [event for event in events if isinstance(event, Stage) and event.name.startswith("translating")]
    assert result(tmp_path / "run") == undisturbed


@pytest.mark.usefixtures("turning")
def test_a_run_whose_text_has_changed_is_not_resumed(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    seen = list[Event]()
    for event in train(corpus, tmp_path / "run", back_translate=[mono], overrides=BRIEF):
        seen.append(event)
        if MOMENTS["translating more"](seen):
            break
    before = (tmp_path / "run/training.new/synthetic/state.json").read_bytes()
    mono.write_text(mono.read_text() + "1 2\n")
    with pytest.raises(DataError, match=r"had 70 usable sentences .* now has 71: restore it, or start over"):
        list(resume(tmp_path / "run"))
    assert (tmp_path / "run/training.new/synthetic/state.json").read_bytes() == before  # nothing is thrown away


def test_a_request_of_an_older_version_is_read() -> None:
    old: dict[str, Any] = {"files": ["a"], "given": {}, "device": "cpu", "dev": [], "test": [], "start": None}
    assert not TrainingRequest(**json.loads(json.dumps(old))).synthetic


# Mistakes


@pytest.mark.parametrize(
    ("content", "name", "error", "message"),
    [
        (b"\n \n", "mono.back", DataError, r"no usable sentences in .*mono.back: 2 left out: blank"),
        (b"", "mono.back", DataError, "the files are empty"),
        (b"eins\nf\xfcnf\n", "mono.back", DataError, r"mono.back:2: byte 2 of the line \(0xFC\) is not UTF-8"),
        (
            b"a\tb\n",
            "mono.tsv",
            DataError,
            "mono.tsv: .tsv is not plain text: --back-translate takes plain text, one sentence per line",
        ),
        (None, "mono.back", DataError, r"mono.back: cannot be read"),
    ],
)
def test_a_bad_text_is_refused_at_once_and_leaves_no_trace(
    corpus: list[Path], tmp_path: Path, content: bytes | None, name: str, error: type[RegardError], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        list(train(corpus, tmp_path / "runs" / "new", back_translate=[tmp_path / name], overrides=BRIEF))
    assert not (tmp_path / "runs").exists()


def test_a_bad_corpus_leaves_no_trace_either(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    corpus[0].write_text(corpus[0].read_text() + "1 2 3\n")
    with pytest.raises(DataError, match="misaligned"):
        list(train(corpus, tmp_path / "runs" / "new", back_translate=[mono], overrides=BRIEF))
    assert not (tmp_path / "runs").exists()


def test_the_reverse_model_must_fit(corpus: list[Path], mono: Path, tmp_path: Path) -> None:
    finish(train(corpus, tmp_path / "same", overrides={**BRIEF, "training.steps": 1}))

    def refuse(error: type[RegardError], message: str, **more: Any) -> None:
        given = {"back_translate": [mono], "overrides": BRIEF, **more}
        with pytest.raises(error, match=message):
            list(train(corpus, tmp_path / "new", **given))
        assert not (tmp_path / "new").exists()

    refuse(InputError, "translates forth → back, but --reverse needs back → forth", reverse=tmp_path / "same")
    refuse(ModelError, "no such folder", reverse=tmp_path / "nowhere")
    refuse(InputError, "add --back-translate FILES", reverse=tmp_path / "same", back_translate=[])
    refuse(
        InputError,
        "--back-translate with --from needs a model that translates back",
        start=tmp_path / "same",
        overrides={},
    )
    refuse(SettingsError, "--back-translate does not apply to the task write", overrides={"task": "write"})
