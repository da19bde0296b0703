"""Each task trains from files to a model that works, can be resumed, and can start from another model."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.model_loading import load_as
from regard.decoding.writer import Writer
from regard.errors import DataError, ModelError, SettingsError
from regard.model_folder import TRAINING, read_settings
from regard.preparation.train_and_resume import resume, train
from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress
from regard.training.run import TASKS, open_run
from regard.weights import read_folder, read_tensors
from tests.training.toys import TINY, write_labels, write_text, write_words

KINDS: dict[str, dict[str, Any]] = {
    "write": {"task": "write"},
    "fill": {"task": "fill"},
    "fill and judge": {"task": "fill", "model.next_sentence": True, "training.whole_words": True},
    "classify": {"task": "classify"},
    "classify two": {"task": "classify"},
    "classify words": {"task": "classify", "data.carrier": "word"},
}
WRITE_CORPUS: dict[str, Callable[[Path], Path]] = {
    "classify": write_labels,
    "classify two": lambda folder: write_labels(folder, two=True),
    "classify words": write_words,
}
kinds = pytest.mark.parametrize("kind", KINDS)


def corpus_for(kind: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return WRITE_CORPUS.get(kind, write_text)(folder)


def options(changes: dict[str, Any]) -> dict[str, Any]:
    return {**TINY, **changes}


def fine(**changes: Any) -> dict[str, Any]:
    """Returns settings for a run that starts from another model: only those of training."""
    kept = {name: value for name, value in TINY.items() if name.startswith("training.")}
    return {**kept, **{name.replace("__", "."): value for name, value in changes.items()}}


class Runs:
    """A finished run of each kind, trained when first needed; no test changes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: dict[str, list[Event]] = {}

    def __call__(self, kind: str) -> Path:
        folder = self.folder / kind.replace(" ", "-")
        if kind not in self.events:
            corpus = corpus_for(kind, self.folder / "corpora" / kind)
            self.events[kind] = list(train([corpus], folder, overrides=options(KINDS[kind])))
        return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


# Whole runs


@kinds
def test_a_run_yields_its_events_and_fills_its_folder(kind: str, runs: Runs) -> None:
    folder, events = runs(kind), runs.events[kind]
    assert [e.step for e in events if isinstance(e, Progress)] == list(range(1, 7))
    evaluations = [e for e in events if isinstance(e, Evaluation)]
    assert [e.step for e in evaluations] == [3, 6]
    assert all(math.isfinite(e.loss) and e.sample for e in evaluations)
    (prepared,) = (e for e in events if isinstance(e, Prepared))
    assert prepared.preset == "tiny"
    assert isinstance(events[-1], Finished)
    assert events[-1].complete
    assert events[-1].scores["dev"]
    assert {path.name for path in folder.iterdir()} - {"canary.json"} == {  # a task without examples has no canary
        "model.toml", "weights.safetensors", "tokenizer.json", "card.md", "log.jsonl", "manifest.json", "training",
    }  # fmt: skip
    assert read_settings(folder).task == KINDS[kind]["task"]
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in logged if e["event"] == "Evaluation"] == [3, 6]
    card = (folder / "card.md").read_text()
    assert all(line in card for line in events[-1].scores["dev"])


@pytest.mark.parametrize("kind", ["write", "fill", "fill and judge"])
def test_training_lowers_the_dev_loss(kind: str, runs: Runs) -> None:
    runs(kind)
    before, after = (event.loss for event in runs.events[kind] if isinstance(event, Evaluation))
    assert after < before


def test_the_folders_work(runs: Runs) -> None:
    assert isinstance(load_as(Writer, runs("write"))("the cat", max_tokens=5), str)
    assert load_as(Filler, runs("fill"))("the [MASK] sat").endswith(" sat")
    assert load_as(Filler, runs("fill and judge")).fill("the [MASK] sat", 3)[0][0].probability > 0
    assert regard.load(runs("classify"))("a good cat") in ("good", "bad")
    assert load_as(Classifier, runs("classify two"))(("a good cat", "bad")) in ("good", "bad")
    labels = load_as(Classifier, runs("classify words"))("the cat sat").split()
    assert len(labels) == 3
    assert set(labels) <= {"B-animal", "O"}
    for kind in ("fill", "classify"):
        assert load_as(Embedder, runs(kind))(["the cat", "a dog"]).shape == (2, 16)


@kinds
def test_the_weights_in_the_folder_have_the_reported_dev_loss(kind: str, runs: Runs) -> None:
    folder = runs(kind)
    best = [e.loss for e in runs.events[kind] if isinstance(e, Evaluation) and e.best][-1]
    assert dev_loss(folder) == pytest.approx(best, rel=1e-5)


def dev_loss(folder: Path, model: Path | None = None) -> float:
    """Returns the nats per token of the folder's dev set with its own weights or those of another folder."""
    own = read_folder(folder)
    task = TASKS[own.settings.task](folder / TRAINING, own.settings, own.vocabularies, torch.device("cpu"))
    weights = own.model if model is None else read_folder(model).model
    surprise = tokens = 0.0
    with torch.no_grad():
        for batch in task.dev_batches():
            loss = task.loss(weights, batch, 0.0)
            surprise, tokens = surprise + loss.surprise, tokens + loss.tokens
    return surprise / tokens


@pytest.mark.parametrize("kind", ["write", "fill and judge", "classify"])
def test_the_same_seed_gives_the_same_bytes(kind: str, runs: Runs, tmp_path: Path) -> None:
    corpus = corpus_for(kind, tmp_path / "corpus")
    list(train([corpus], tmp_path / "again", overrides=options(KINDS[kind])))
    assert weights_of(tmp_path / "again") == weights_of(runs(kind))


def weights_of(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def test_a_test_set_is_scored_at_the_end(tmp_path: Path) -> None:
    for kind in ("write", "fill", "classify"):
        corpus, test = corpus_for(kind, tmp_path / kind), corpus_for(kind, tmp_path / kind / "test")
        overrides = options({**KINDS[kind], "training.steps": 1})
        *_, finished = train([corpus], tmp_path / f"{kind}-run", test=[test], overrides=overrides)
        assert isinstance(finished, Finished)
        assert set(finished.scores) == {"dev", "test"}
        assert finished.scores["test"] != finished.scores["dev"]


# Stopped and resumed


@pytest.mark.parametrize("kind", ["write", "fill", "fill and judge", "classify", "classify words"])
@pytest.mark.parametrize("moment", [1, 4])
def test_a_stopped_run_continues_as_if_it_had_not_stopped(kind: str, moment: int, runs: Runs, tmp_path: Path) -> None:
    corpus, folder = corpus_for(kind, tmp_path / "corpus"), tmp_path / "run"
    stop = threading.Event()
    for event in train([corpus], folder, overrides=options(KINDS[kind]), stop=stop):
        if isinstance(event, Progress) and event.step == moment:
            stop.set()
    assert isinstance(event, Finished)
    assert not event.complete
    assert event.step == moment
    *_, finished = resume(folder)
    assert isinstance(finished, Finished)
    assert finished.complete
    assert weights_of(folder) == weights_of(runs(kind))


# From another model


@pytest.mark.parametrize("kind", ["write", "fill", "classify"])
def test_a_run_from_a_model_begins_with_its_loss(kind: str, runs: Runs, tmp_path: Path) -> None:
    """With a learning rate of 0, the model that it starts from is evaluated."""
    start, corpus = runs(kind), corpus_for(kind, tmp_path / "corpus")
    still = fine(training__learning_rate=0.0, training__steps=1, model__dropout=0.0)
    events = list(train([corpus], tmp_path / "run", start=start, overrides=still))
    first = next(event.loss for event in events if isinstance(event, Evaluation))
    assert first == pytest.approx(dev_loss(tmp_path / "run", start), rel=1e-5)
    assert first == pytest.approx(dev_loss(start), rel=1e-5)  # the same corpus, and its dev set
    theirs, ours = (read_tensors(folder / "weights.safetensors")[0] for folder in (start, tmp_path / "run"))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    (prepared,) = (event for event in events if isinstance(event, Prepared))
    assert prepared.reason == f"starting from {start.name}"


@pytest.mark.parametrize("kind", ["write", "fill", "classify"])
def test_shape_and_vocabulary_are_those_of_the_model(kind: str, runs: Runs, tmp_path: Path) -> None:
    start = runs(kind)
    corpus = corpus_for(kind, tmp_path / "corpus")
    corpus.write_text(corpus.read_text().replace("cat", "zebra"))
    list(train([corpus], tmp_path / "run", start=start, overrides=fine()))
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    assert read_settings(tmp_path / "run").model == read_settings(start).model
    assert read_settings(tmp_path / "run").training.schedule == "linear"
    assert weights_of(tmp_path / "run") != weights_of(start)


def test_training_from_a_model_takes_four_epochs_by_default(runs: Runs, tmp_path: Path) -> None:
    corpus, given = write_text(tmp_path, lines=600), {"training.batch_tokens": 200, "training.device": "cpu"}
    for name, more in {"four": {}, "accumulated": {"training.accumulate": 3}, "two": {"training.steps": 2}}.items():
        list(train([corpus], tmp_path / name, start=runs("write"), overrides=given | more, prepare_only=True))
    four, accumulated, two = (open_run(tmp_path / name) for name in ("four", "accumulated", "two"))
    epoch = len(four.plan(0))
    assert epoch > 9
    training = four.settings.training
    assert (training.steps, training.warmup, training.evaluate_every) == (4 * epoch, 4 * epoch // 10, 4 * epoch // 10)
    assert accumulated.settings.training.steps == 4 * -(-epoch // 3)
    training = two.settings.training
    assert (training.steps, training.warmup, training.evaluate_every) == (2, 0, 1)


def test_a_run_from_a_model_can_be_stopped_and_resumed(runs: Runs, tmp_path: Path) -> None:
    start, corpus = runs("write"), corpus_for("write", tmp_path / "corpus")
    start = Path(shutil.copytree(start, tmp_path / "start"))
    list(train([corpus], tmp_path / "whole", start=start, overrides=fine()))
    stop = threading.Event()
    for event in train([corpus], tmp_path / "run", start=start, overrides=fine(), stop=stop):
        if isinstance(event, Progress) and event.step == 2:
            stop.set()
    shutil.rmtree(start)  # it is not needed any more
    list(resume(tmp_path / "run"))
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize("start", ["fill", "fill and judge"])
@pytest.mark.parametrize("kind", ["classify", "classify two", "classify words"])
def test_a_model_that_fills_learns_to_label(start: str, kind: str, runs: Runs, tmp_path: Path) -> None:
    corpus, folder = corpus_for(kind, tmp_path / "corpus"), tmp_path / "run"
    changes = {**fine(training__learning_rate=0.0, training__steps=1), **KINDS[kind]}
    list(train([corpus], folder, start=runs(start), overrides=changes))
    settings = read_settings(folder)
    assert settings.task == "classify"
    assert (settings.model.width, settings.model.max_length, settings.model.next_sentence) == (16, 24, False)
    theirs, ours = (read_tensors(path / "weights.safetensors")[0] for path in (runs(start), folder))
    shared = theirs.keys() & ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in shared)
    assert ours.keys() - shared == {"label.weight", "label.bias"}
    assert any(name.startswith("encoder.") for name in shared)
    assert isinstance(regard.load(folder), Classifier)


def test_labels_keep_their_order_where_the_model_knows_them(runs: Runs, tmp_path: Path) -> None:
    corpus = write_labels(tmp_path)
    rows = [line.split("\t")[::-1] for line in corpus.read_text().splitlines()[1:]]
    corpus.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    list(train([corpus], tmp_path / "run", start=runs("classify"), overrides=fine(training__steps=1)))
    assert read_settings(tmp_path / "run").data.labels == ("bad", "good")
    corpus.write_text("label\ttext\n" + "".join(f"{i % 3}\t{' '.join(row)}\n" for i, row in enumerate(rows)))
    list(train([corpus], tmp_path / "other", start=runs("classify"), overrides=fine(training__steps=1)))
    assert read_settings(tmp_path / "other").data.labels == ("0", "1", "2")


# What is refused


@pytest.mark.parametrize(
    ("start", "task", "allowed"),
    [
        ("write", "fill", "fill or embed or classify"),
        ("write", "classify", "fill or embed or classify"),
        ("fill", "write", "write"),
        ("classify", "translate", "translate"),
        ("fill", "embed", None),
    ],
)
def test_a_model_of_another_task_is_refused(
    start: str, task: str, allowed: str | None, runs: Runs, tmp_path: Path
) -> None:
    corpus = corpus_for(task, tmp_path / "corpus")
    with pytest.raises(SettingsError) as caught:
        list(train([corpus], tmp_path / "run", start=runs(start), overrides=fine(task=task)))
    expected = (
        f"the task {task} cannot start from a model of the task {start}: --from needs a model of the task {allowed}"
        if allowed
        else f"the task {task} cannot be trained: use translate, write, fill, classify"
    )
    assert str(caught.value) == expected
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"preset": "tiny"}, "sets the model.s shape, which --from takes from the other model"),
        ({"model__width": 32}, r"model.width comes from the --from model \(16\) and cannot be changed"),
        ({"model__bias": "true"}, "model.bias comes from the --from model .false. and cannot be changed"),
        ({"tokenizer__vocabulary": 400}, "tokenizer.vocabulary comes from the --from model"),
    ],
)
def test_the_shape_of_a_model_cannot_be_changed(changes: dict[str, Any], says: str, runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=says):
        list(train([write_text(tmp_path)], tmp_path / "run", start=runs("write"), overrides=fine(**changes)))
    assert not (tmp_path / "run").exists()


def test_dropout_can_be_changed(runs: Runs, tmp_path: Path) -> None:
    changes = fine(model__dropout=0.4, training__steps=1)
    list(train([write_text(tmp_path)], tmp_path / "run", start=runs("write"), overrides=changes))
    assert read_settings(tmp_path / "run").model.dropout == 0.4


def replace_setting(old: str, new: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        settings = folder / "model.toml"
        settings.write_text(settings.read_text().replace(old, new))

    return damage


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "no weights": lambda folder: (folder / "weights.safetensors").unlink(),
    "half the weights": lambda folder: write("weights.safetensors", weights_of(folder)[:-100])(folder),
    "weights that are a program": write("weights.safetensors", pickle.dumps({"a": 1})),
    "invalid settings": write("model.toml", b"task = 'write'\n[[model"),
    "an invalid task": replace_setting('"write"', '"../../etc"'),
    "another shape": replace_setting("width = 16", "width = 32"),
    "heads that do not divide the width": replace_setting("heads = 2", "heads = 3"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "an invalid tokenizer": write("tokenizer.json", b'{"specials": {}, "size": 5, "tokenizer": "x"}'),
    "deep brackets": write("tokenizer.json", b"[" * 100_000),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_model_to_start_from_is_refused_in_one_line(kind: str, runs: Runs, tmp_path: Path) -> None:
    start = Path(shutil.copytree(runs("write"), tmp_path / "start"))
    DAMAGES[kind](start)
    with pytest.raises(ModelError) as caught:
        list(train([write_text(tmp_path)], tmp_path / "run", start=start, overrides=fine()))
    assert len(str(caught.value).splitlines()) == 1
    assert str(start) in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["write", "fill", "classify"])
def test_an_empty_or_missing_corpus_leaves_no_folder(kind: str, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("")
    for name in ("empty.tsv", "missing.tsv"):
        with pytest.raises(DataError):
            list(train([tmp_path / name], tmp_path / "runs" / "new", overrides=options(KINDS[kind])))
        assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_not_replaced_by_accident(runs: Runs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs("write"), tmp_path / "run"))
    with pytest.raises(ModelError, match="already contains a model"):
        list(train([write_text(tmp_path)], folder, overrides=options(KINDS["write"])))
    assert weights_of(folder) == weights_of(runs("write"))


@pytest.mark.parametrize(("kind", "metric"), [("write", "bleu"), ("fill", "f1"), ("classify", "chrf")])
def test_a_metric_that_the_task_does_not_have_is_refused(kind: str, metric: str, tmp_path: Path) -> None:
    overrides = options({**KINDS[kind], "training.metric": metric})
    with pytest.raises(SettingsError, match=f"training.metric = {metric} is not available for the task {kind}: use "):
        list(train([corpus_for(kind, tmp_path / "corpus")], tmp_path / "run", overrides=overrides))


def test_long_texts_of_words_do_not_end_a_run(tmp_path: Path) -> None:
    """Texts that are longer than model.max_length are shortened, in the dev set too."""
    corpus = write_words(tmp_path, longest=60)
    events = list(train([corpus], tmp_path / "run", overrides=options(KINDS["classify words"])))
    assert isinstance(events[-1], Finished)
    assert any("and were truncated" in event.text for event in events if isinstance(event, Note))


def test_the_output_of_a_writer_is_reproducible(runs: Runs) -> None:
    first, again = (load_as(Writer, runs("write")) for _ in range(2))
    assert first("the", temperature=1.0, seed=4) == again("the", temperature=1.0, seed=4)
    assert np.isfinite(first.score("the cat sat.").surprise)
