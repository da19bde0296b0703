"""The interface of the four tasks: batches, their loss, and scores."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.decoding.confidence import Confidence
from regard.errors import SettingsError
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Rows
from regard.weights import Contents, Model

ABOUT, START = "about.json", "start.safetensors"


class Batch(Protocol):
    """What one step learns from."""

    @property
    def tokens(self) -> int:
        """How many things are predicted: what the loss is averaged over."""

    @property
    def seen(self) -> int:
        """How many tokens are read, padding not counted."""

    def __len__(self) -> int:
        """How many rows there are."""

    def share(self, part: int, parts: int) -> Batch:
        """Every so manieth row; the losses of all parts are together that of the whole."""


@dataclass(frozen=True)
class Loss:
    """Sums over the predictions of a batch, so that batches can be added before they are averaged."""

    total: Tensor  # what is differentiated, label smoothing included
    surprise: float  # minus the log-probability of what is right, in nats
    tokens: int


@dataclass(frozen=True)
class Assessment:
    """How a model does on the dev set beside its loss, and something to look at."""

    scores: dict[str, float]
    sample: list[tuple[str, str]]  # lines of a label and a text


class Task(ABC):
    """What differs between the tasks while a model is trained; made from a folder that a `Preparation` filled."""

    unit: str  # what is counted
    prints: tuple[str, ...] = ()  # scores that are shown beside the perplexity
    confidence: Confidence | None = None  # known once the dev set is reported on, of what translates

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        self.work, self.settings, self.vocabularies, self.device = work, settings, vocabularies, device

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Rows]:
        """The batches of an epoch, as rows of the training set."""

    @abstractmethod
    def batch(self, rows: Rows, update: int) -> Batch:
        """A batch for the model; what is random in it depends on the number of the update alone."""

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """`batch(rows, update).share(part, parts)`, without making the rest."""
        return self.batch(rows[part::parts], update)

    @abstractmethod
    def dev_batches(self) -> Iterator[Batch]:
        """The whole dev set, always the same."""

    @abstractmethod
    def loss(self, model: Model, batch: Any, smoothing: float) -> Loss:
        """How badly the model predicts what it should."""

    @abstractmethod
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Scores on the dev set, of which the whole surprise is known, and a sample, another one for each `number`."""

    @abstractmethod
    def report(self, contents: Contents, name: str) -> list[str]:
        """The final scores of a held-out set, in lines that say how they were made."""

    def held_out(self, name: str) -> list[dict[str, Any]]:
        """What was put aside under this name, a JSON object a line."""
        lines = (self.work / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]


METRICS = {
    "translate": ("chrf", "bleu", "loss"),
    "write": ("loss",),
    "fill": ("loss", "accuracy"),
    "classify": ("accuracy", "f1", "loss"),
}


def require_metric(settings: Settings) -> None:
    """Refuses to watch a score that the task does not have."""
    known = METRICS.get(settings.task, ())
    if known and settings.training.metric not in known:
        raise SettingsError(
            f"training.metric = {settings.training.metric} is not measured for the task {settings.task}: "
            f"use {' or '.join(known)}"
        )
