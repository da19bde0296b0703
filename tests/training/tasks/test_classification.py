"""Labelled texts become the batches that a classifier would make of them, and all of them are scored."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.decoding.fill_classify_embed import Classifier
from regard.errors import DataError
from regard.model.transformer import Encoder
from regard.model_folder import TOKENIZER, read_settings
from regard.preparation.label_preparation import LabelPreparation
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import IGNORE
from regard.training.events import Event, Note
from regard.training.tasks.classification import ClassificationTraining, LabelBatch, predict_labels, split_words
from regard.training.tasks.task import ABOUT
from regard.weights import Contents, build_model
from tests.training.toys import SHAPE, write_labels, write_words

CPU = torch.device("cpu")


def prepare(folder: Path, file: Path, dev: Path | None = None, **data: Any) -> tuple[ClassificationTraining, list[str]]:
    """Prepares a file of labelled texts; returns the task and the notes."""
    events: list[Event] = []
    settings = {
        "task": "classify", "tokenizer": {"vocabulary": 320}, "model": SHAPE, "data": data,
        "training": {"batch_tokens": 100, "device": "cpu"},
    }  # fmt: skip
    LabelPreparation(
        folder, TrainingRequest([str(file)], settings, "cpu", [str(dev)] if dev else []), events.append
    ).run()
    recorded: Settings = read_settings(folder)
    task = ClassificationTraining(folder, recorded, Vocabularies.load(folder / TOKENIZER), CPU)
    return task, [event.text for event in events if isinstance(event, Note)]


def contents_of(task: ClassificationTraining) -> Contents:
    torch.manual_seed(0)
    return Contents(task.settings, task.vocabularies, build_model(task.settings, task.vocabularies).eval())


def batches_of(task: ClassificationTraining) -> list[LabelBatch]:
    found = [task.batch(rows, 0) for rows in task.plan(0)]
    assert all(isinstance(batch, LabelBatch) for batch in found)
    return found  # type: ignore[return-value]


def rows_of(batch: LabelBatch) -> list[tuple[list[int], list[int], Any]]:
    """Returns the ids, segments and labels of each row, without padding."""
    keep = torch.ones_like(batch.inputs, dtype=torch.bool) if batch.keep is None else batch.keep
    assert batch.seen == int(keep.sum())
    assert batch.tokens == int((batch.labels != IGNORE).sum())
    return [
        (ids[kept].tolist(), kinds[kept].tolist(), label[kept].tolist() if label.dim() else int(label))
        for ids, kinds, kept, label in zip(batch.inputs, batch.segments, keep, batch.labels, strict=True)
    ]


@pytest.mark.parametrize("two", [False, True])
def test_a_batch_equals_the_input_of_a_classifier(two: bool, tmp_path: Path) -> None:
    file, dev = write_labels(tmp_path, two=two), write_labels(tmp_path, "dev.tsv", 20, seed=1, two=two)
    task, notes = prepare(tmp_path / "new", file, dev)
    assert task.settings.data.labels == ("bad", "good")
    assert any("texts are longer than 12 tokens and were truncated" in line for line in notes) == two
    lines = [line.split("\t") for line in file.read_text().splitlines()[1:]]
    texts: list[Any] = [tuple(texts) if two else texts[0] for _, *texts in lines]
    rows = Classifier(contents_of(task)).rows(texts)
    expected = [(r.ids, r.segments, ("bad", "good").index(line[0])) for r, line in zip(rows, lines, strict=True)]
    assert sorted(row for batch in batches_of(task) for row in rows_of(batch)) == sorted(expected)
    assert any(sum(segments) for _, segments, _ in expected) == two


def test_a_word_has_its_label_at_its_first_token(tmp_path: Path) -> None:
    file, dev = write_words(tmp_path, longest=4), write_words(tmp_path, "dev.conll", 9, seed=1, longest=4)
    task, _ = prepare(tmp_path / "new", file, dev, carrier="word")
    names = task.settings.data.labels
    assert names == ("B-animal", "O")
    specials, vocabulary = task.specials, task.vocabularies.target
    expected = []
    for sentence in file.read_text().strip().split("\n\n"):
        ids, labels = [specials.begin], [IGNORE]
        for line in sentence.split("\n"):
            word, label = line.split()
            pieces = vocabulary.encode_words([word])[0]
            ids += pieces
            labels += [names.index(label), *[IGNORE] * (len(pieces) - 1)]
        if len(ids) < 12:
            expected.append((*task_row(ids, labels, specials.end), [*labels, IGNORE]))
    found = [row for batch in batches_of(task) for row in rows_of(batch)]
    assert all(row in found for row in expected)
    assert len(expected) > 20
    assert any(labels.count(IGNORE) > 2 for _, _, labels in expected)  # a word of several tokens
    assert len(found) == 60


def task_row(ids: list[int], labels: list[int], end: int) -> tuple[list[int], list[int]]:
    return [*ids, end], [0] * (len(labels) + 1)


@pytest.mark.parametrize("carrier", ["text", "word"])
def test_the_loss_is_the_surprise_at_the_labels(carrier: str, tmp_path: Path) -> None:
    file = write_words(tmp_path) if carrier == "word" else write_labels(tmp_path)
    task, _ = prepare(tmp_path / "new", file, carrier=carrier)
    model = contents_of(task).model
    assert isinstance(model, Encoder)
    assert model.label is not None
    batch = next(batch for batch in batches_of(task) if batch.keep is not None)
    with torch.no_grad():
        found = task.loss(model, batch, 0.0)
        smoothed = task.loss(model, batch, 0.2)
        states = model(batch.inputs, batch.keep, batch.segments)
        logits = model.label(states if carrier == "word" else model.pool(states, batch.keep)).flatten(0, -2)
        expected = F.cross_entropy(logits, batch.labels.flatten(), ignore_index=IGNORE, reduction="sum")
    assert found.tokens == batch.tokens
    assert found.surprise == pytest.approx(float(expected), rel=1e-4)
    assert float(found.total) == pytest.approx(float(expected), rel=1e-4)
    assert smoothed.surprise == pytest.approx(found.surprise)
    assert float(smoothed.total) != pytest.approx(found.surprise, rel=1e-5)


def test_the_dev_set_is_split_off_and_reported(tmp_path: Path) -> None:
    file = write_labels(tmp_path, rows=100)
    task, notes = prepare(tmp_path / "new", file)
    dev = [(*record["labels"], *record["texts"]) for record in task.held_out("dev")]
    lines = [tuple(line.split("\t")) for line in file.read_text().splitlines()[1:]]
    assert len(dev) == len(task.dev) == 10
    assert len(task.train) == 90
    assert set(dev) < set(lines)
    assert "train: 100 texts read, 100 kept" in notes
    assert "dev: 10 texts held out; none of them is in the rest" in notes
    about = json.loads((tmp_path / "new" / ABOUT).read_text())
    train = [line[0] for line in lines if line not in dev]
    assert about["balance"] == {label: train.count(label) for label in ("good", "bad")}
    assert about["held_out"] == {"dev": 10}
    shares = next(line for line in notes if line.startswith("labels: "))
    assert all(f"{label} {train.count(label) / 90:.1%}" in shares for label in ("good", "bad"))


def test_dev_batches_are_the_dev_set(tmp_path: Path) -> None:
    task, _ = prepare(tmp_path / "new", write_labels(tmp_path))
    first, again = (list(task.dev_batches()) for _ in range(2))
    assert sum(batch.tokens for batch in first) == len(task.held_out("dev"))
    for one, other in zip(first, again, strict=True):
        assert isinstance(one, LabelBatch)
        assert isinstance(other, LabelBatch)
        assert torch.equal(one.inputs, other.inputs)


def test_scores_are_those_of_the_dev_set(tmp_path: Path) -> None:
    task, _ = prepare(tmp_path / "new", write_labels(tmp_path))
    contents = contents_of(task)
    found = Classifier(contents).classify([record["texts"][0] for record in task.held_out("dev")])
    right = [record["labels"][0] for record in task.held_out("dev")]
    hits = sum(a.label == b for a, b in zip(found, right, strict=True))
    assessment = task.assess(contents, 0.0, 3)
    assert assessment[0]["accuracy"] == pytest.approx(100 * hits / len(right))
    assert dict(assessment[1])["right"] == right[3]
    assert dict(assessment[1])["model"] == found[3].label
    assert task.report(contents, "dev")[0] == f"accuracy {100 * hits / len(right):.2f} % ({len(right)} labels)"


def test_a_text_of_more_words_than_fit_is_judged_in_pieces(tmp_path: Path) -> None:
    file = write_words(tmp_path, longest=40)
    task, notes = prepare(tmp_path / "new", file, carrier="word")
    assert any("texts are longer than 12 tokens" in line for line in notes)
    contents = contents_of(task)
    records, outputs = task.label(contents, "dev")
    assert records == task.held_out("dev")
    assert task.compare(records, outputs).count == sum(len(record["labels"]) for record in records)
    assert [len(labels) for labels in outputs] == [len(record["texts"]) for record in records]
    assert max(map(len, outputs)) > 12


def test_words_are_cut_into_pieces_that_fit(tmp_path: Path) -> None:
    task, _ = prepare(tmp_path / "new", write_words(tmp_path), carrier="word")
    classifier = Classifier(contents_of(task))
    dice = np.random.default_rng(0)
    for size in range(0, 40, 3):
        words = [str(word) for word in dice.choice(["cat", "sat", "far", "q" * 30, "zzzzz"], size)]
        pieces = list(split_words(classifier, words))
        assert [word for piece in pieces for word in piece] == words
        assert all(pieces) or not words
        lengths = [[len(ids) for ids in classifier.vocabulary.encode_words(piece)] for piece in pieces]
        assert all(sum(row) <= 10 or len(row) == 1 for row in lengths)
        assert all(sum(a) + b[0] > 10 for a, b in pairwise(lengths))  # no piece is cut early
        assert len(predict_labels(classifier, [tuple(words)])[0]) == size


# What is wrong


def test_a_label_that_is_only_held_out_is_refused(tmp_path: Path) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_text("label\ttext\ngood\tfine\nnew\tstrange\n")
    with pytest.raises(DataError) as caught:
        prepare(tmp_path / "new", write_labels(tmp_path), dev)
    assert str(caught.value) == f"{dev}:3: the label 'new' of the dev set is not in the training set"


def test_one_label_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.tsv"
    file.write_text("label\ttext\n" + "".join(f"x\ttext {i}\n" for i in range(30)))
    with pytest.raises(DataError, match="all texts have the label 'x', but a classifier needs at least two"):
        prepare(tmp_path / "new", file)


def test_too_many_labels_are_refused(tmp_path: Path) -> None:
    file, dev = tmp_path / "many.tsv", tmp_path / "dev.tsv"
    file.write_text("label\ttext\n" + "".join(f"x{i}\ttext\n" for i in range(1001)))
    dev.write_text("label\ttext\nx1\ttext\n")
    with pytest.raises(DataError, match="1,001 different labels, but Regard supports at most 1,000"):
        prepare(tmp_path / "new", file, dev)


def test_a_file_without_a_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "none.tsv"
    file.write_text("label\ttext\nx\t\n")
    with pytest.raises(DataError, match=r"no usable .* in .*none\.tsv"):
        prepare(tmp_path / "new", file)
