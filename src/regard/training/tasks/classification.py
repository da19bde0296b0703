"""Trains classifiers for texts, text pairs, or the individual words of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.fill_classify_embed import Classifier, Text
from regard.evaluation.classification_scores import Quality, compare_labels
from regard.model.transformer import Encoder
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import IGNORE, Batch, Examples, Rows, padded, padding_mask
from regard.training.losses import Loss
from regard.training.tasks.task import EXAMPLES, Assessment, Task
from regard.weights import Contents, Model


@dataclass(frozen=True)
class LabelBatch(Batch):
    """Texts with one label each, or one label for each word."""

    segments: Tensor  # [B, T]


class ClassificationTraining(Task):
    """Trains an encoder to classify texts or words."""

    unit = "texts"
    metrics = ("accuracy", "f1", "loss")
    shown_scores = ("accuracy", "f1")

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Examples(work / "train"), Examples(work / "dev")
        self.words = settings.data.carrier == "word"

    def plan(self, epoch: int) -> Sequence[Rows]:
        training = self.settings.training
        return self.train.plan(training.batch_tokens, training.seed, epoch)

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.make_batch(self.train, rows)

    def dev_batches(self) -> Iterator[Batch]:
        for rows in self.dev.plan(self.settings.training.batch_tokens, 0, 0):
            yield self.make_batch(self.dev, rows)

    def make_batch(self, examples: Examples, rows: Rows) -> LabelBatch:
        texts, segments, labels = [], [], list[Any]()
        for row in rows:
            ids, marks = (side.tolist() for side in examples.pair(int(row)))
            if self.words:  # `begin` and `end` are not stored; the mark 0, inside a word, becomes `IGNORE`
                ids = [self.specials.begin, *ids, self.specials.end]
                labels.append([IGNORE, *(mark - 1 for mark in marks), IGNORE])
                segments.append([0] * len(ids))
            else:
                labels.append(marks[1])
                segments.append([0] * marks[0] + [1] * (len(ids) - marks[0]))
            texts.append(ids)
        wanted = padded(labels, IGNORE) if self.words else torch.tensor(labels)
        keep = padding_mask([len(ids) for ids in texts])
        return LabelBatch(padded(texts, self.specials.pad), wanted, keep, padded(segments, 0)).to(self.device)

    def loss(self, model: Model, batch: LabelBatch, smoothing: float) -> Loss:
        assert isinstance(model, Encoder)
        assert model.label is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        states = states[batch.labels != IGNORE] if self.words else model.pool(states, batch.keep)
        logits, labels = model.label(states).float(), batch.labels[batch.labels != IGNORE]
        total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
        surprise = F.cross_entropy(logits.detach(), labels, reduction="sum")
        return Loss(total, float(surprise), batch.tokens)

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Returns accuracy and F1 on the dev set, and one text with its labels."""
        records, outputs = self.label(contents, "dev")
        record, output = records[number % len(records)], outputs[number % len(records)]
        text = (" " if self.words else " | ").join(record["texts"])
        sample = [("text", text), ("model", " ".join(output)), ("right", " ".join(record["labels"]))]
        quality = self.compare(records, outputs)
        return {"accuracy": quality.accuracy, "f1": quality.f1}, sample

    def report(self, contents: Contents, name: str) -> list[str]:
        """Reports accuracy, F1, and the confusion matrix of the labels."""
        quality = self.compare(*self.label(contents, name))
        return [*quality.lines(), *quality.table()]

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns texts with their most probable labels; returns none for pairs of texts and for words."""
        texts = [record["texts"][0] for record in self.held_out("dev") if len(record["texts"]) == 1 and not self.words]
        labels = Classifier(contents).classify(texts[:EXAMPLES]) if texts else []
        return [(text, label.label) for text, label in zip(texts, labels, strict=False)]

    def label(self, contents: Contents, name: str) -> tuple[list[dict[str, list[str]]], list[list[str]]]:
        """Labels a held-out set; returns its records, and the model's labels for each record."""
        records = self.held_out(name)
        return records, predict_labels(Classifier(contents), [tuple(record["texts"]) for record in records])

    def compare(self, records: list[dict[str, list[str]]], outputs: list[list[str]]) -> Quality:
        return compare_labels([record["labels"] for record in records], outputs, self.settings.data.labels)


def predict_labels(classifier: Classifier, texts: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """Returns the labels of each text: a single label, or one for each word."""
    if classifier.settings.data.carrier == "word":
        pieces = [list(split_words(classifier, words)) for words in texts]
        labels = iter(classifier.label_words([piece for row in pieces for piece in row]))
        return [[label.label for _ in row for label in next(labels)] for row in pieces]
    inputs: list[Text] = [(text[0], text[1]) if len(text) > 1 else text[0] for text in texts]
    return [[label.label] for label in classifier.classify(inputs)]


def split_words(classifier: Classifier, words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Splits the words of a text into chunks that fit the model."""
    room = classifier.longest - 2
    start = size = 0
    for place, tokens in enumerate(classifier.vocabulary.encode_words(words)):
        if place > start and size + max(1, len(tokens)) > room:
            yield words[start:place]
            start, size = place, 0
        size += max(1, len(tokens))
    yield words[start:]
