"""Learning to label texts, pairs of texts, or the words of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.fill_classify_embed import Classifier, Text
from regard.evaluation.classification_scores import Quality, compare_labels
from regard.model.transformer import Encoder
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import IGNORE, Examples, Rows
from regard.training.tasks.task import (
    Assessment,
    Batch,
    Loss,
    Task,
)
from regard.weights import Contents, Model


@dataclass(frozen=True)
class LabelBatch:
    """Texts side by side, with a label each, or one for each position."""

    inputs: Tensor  # [B, T]
    segments: Tensor  # [B, T]
    keep: Tensor | None  # [B, T]
    labels: Tensor  # [B], or [B, T] with `IGNORE` where a word goes on
    tokens: int
    seen: int

    def __len__(self) -> int:
        return len(self.inputs)

    def share(self, part: int, parts: int) -> LabelBatch:
        inputs, segments, labels = (t[part::parts] for t in (self.inputs, self.segments, self.labels))
        keep = None if self.keep is None else self.keep[part::parts]
        seen = inputs.numel() if keep is None else int(keep.sum())
        return LabelBatch(inputs, segments, keep, labels, int((labels != IGNORE).sum()), seen)


class Classifying(Task):
    """Trains an encoder to label."""

    unit = "texts"
    prints = ("accuracy", "f1")

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Examples(work / "train"), Examples(work / "dev")
        self.specials, self.words = vocabularies.target.specials, settings.data.carrier == "word"

    def plan(self, epoch: int) -> Sequence[Rows]:
        training = self.settings.training
        return self.train.plan(training.batch_tokens, training.seed, epoch)

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.take(self.train, rows)

    def dev_batches(self) -> Iterator[Batch]:
        for rows in self.dev.plan(self.settings.training.batch_tokens, 0, 0):
            yield self.take(self.dev, rows)

    def take(self, examples: Examples, rows: Rows) -> LabelBatch:
        """These examples, padded to one length."""
        extra = 2 if self.words else 0  # begin and end are not stored with words
        lengths = examples.lengths_of(rows)[:, 0] + extra
        inputs = np.full((len(rows), lengths.max()), self.specials.pad, np.int64)
        segments = np.zeros_like(inputs)
        labels = np.full(inputs.shape if self.words else len(rows), IGNORE, np.int64)
        for i, row in enumerate(rows):
            ids, marks = examples.pair(int(row))
            if self.words:
                inputs[i, : len(ids) + 2] = [self.specials.begin, *ids, self.specials.end]
                labels[i, 1 : len(ids) + 1] = np.asarray(marks, np.int64) - 1  # 0, a word that goes on, is `IGNORE`
            else:
                inputs[i, : len(ids)] = ids
                segments[i, int(marks[0]) : len(ids)] = 1
                labels[i] = marks[1]
        keep = (
            None if lengths.min() == lengths.max() else torch.from_numpy(np.arange(inputs.shape[1]) < lengths[:, None])
        )
        tensors = [torch.from_numpy(array).to(self.device) for array in (inputs, segments, labels)]
        keep = None if keep is None else keep.to(self.device)
        count = int((labels != IGNORE).sum())
        return LabelBatch(tensors[0], tensors[1], keep, tensors[2], count, int(lengths.sum()))

    def loss(self, model: Model, batch: LabelBatch, smoothing: float) -> Loss:
        assert isinstance(model, Encoder)
        assert model.label is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        if self.words:
            states = states[batch.labels != IGNORE]
        else:
            states = model.judge(states, batch.keep)
        logits, labels = model.label(states).float(), batch.labels[batch.labels != IGNORE]
        total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
        surprise = F.cross_entropy(logits.detach(), labels, reduction="sum")
        return Loss(total, float(surprise), batch.tokens)

    def quality(
        self, contents: Contents, name: str
    ) -> tuple[Quality, list[tuple[Sequence[str], Sequence[str], list[str]]]]:
        """How good the labels of a held-out set are, and each text with its right and its found labels."""
        records = self.held_out(name)
        found = find_labels(Classifier(contents), [tuple(record["texts"]) for record in records])
        right = [record["labels"] for record in records]
        quality = compare_labels(right, found, self.settings.data.labels)
        return quality, [(r["texts"], r["labels"], f) for r, f in zip(records, found, strict=True)]

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Accuracy and F1 on the dev set, and a text with its label."""
        quality, texts = self.quality(contents, "dev")
        words, right, found = texts[number % len(texts)]
        joint = " " if self.words else " | "
        sample = [("text", joint.join(words)), ("model", " ".join(found)), ("right", " ".join(right))]
        return Assessment({"accuracy": quality.accuracy, "f1": quality.f1}, sample)

    def report(self, contents: Contents, name: str) -> list[str]:
        """Accuracy, F1, and the table of labels and confusions."""
        quality, _ = self.quality(contents, name)
        return [*quality.lines(), *quality.table()]


def find_labels(classifier: Classifier, texts: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The labels that a classifier finds: one for a text, or one for each word."""
    if classifier.settings.data.carrier == "word":
        pieces = [list(fitting(classifier, words)) for words in texts]
        found = iter(classifier.label_words([piece for row in pieces for piece in row]))
        return [[label.label for _ in row for label in next(found)] for row in pieces]
    asked: list[Text] = [(text[0], text[1]) if len(text) > 1 else text[0] for text in texts]
    return [[label.label] for label in classifier.classify(asked)]


def fitting(classifier: Classifier, words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words of a text, as many at a time as the model can read."""
    room = classifier.longest - 2
    start = size = 0
    for place, tokens in enumerate(classifier.vocabulary.encode_words(words)):
        if place > start and size + max(1, len(tokens)) > room:
            yield words[start:place]
            start, size = place, 0
        size += max(1, len(tokens))
    yield words[start:]
