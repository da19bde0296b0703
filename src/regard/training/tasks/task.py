"""The interface of the four tasks: their batches, loss and scores."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.decoding.confidence import Confidence
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Batch, Rows
from regard.training.losses import Loss
from regard.weights import Contents, Model

ABOUT, START = "about.json", "start.safetensors"
EXAMPLES = 5
"""Texts of the dev set that are kept with the model's outputs."""


Assessment = tuple[dict[str, float], list[tuple[str, str]]]
"""The scores of a model on the dev set, and an output to look at: lines of a label and a text."""


class Task(ABC):
    """One way to train a model; it reads a folder that a `Preparation` of the same task has filled."""

    unit: str  # of examples
    metrics: tuple[str, ...]  # that can choose the best weights
    shown_scores: tuple[str, ...]  # beside the perplexity
    confidence: Confidence | None = None  # of a translator, once `report` has calibrated it on the dev set

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        self.work, self.settings, self.vocabularies, self.device = work, settings, vocabularies, device
        self.specials = vocabularies.target.specials

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch, as rows of the training set."""

    @abstractmethod
    def batch(self, rows: Rows, update: int) -> Batch:
        """Returns a batch for the model; its random choices depend only on the number of the update."""

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """Returns `batch(rows, update).share(part, parts)`, without making the other rows."""
        return self.batch(rows[part::parts], update)

    @abstractmethod
    def dev_batches(self) -> Iterator[Batch]:
        """Yields the whole dev set, always the same."""

    @abstractmethod
    def loss(self, model: Model, batch: Any, smoothing: float) -> Loss:
        """Returns the loss of the model on a batch of this task."""

    @abstractmethod
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Scores a model on the dev set, whose total surprise is given; `number` chooses the sample."""

    @abstractmethod
    def report(self, contents: Contents, name: str) -> list[str]:
        """Returns the final scores of a held-out set, in lines that say how they were computed."""

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns a few texts of the dev set and the outputs of the model, which are always the same."""
        return []

    def held_out(self, name: str) -> list[dict[str, Any]]:
        """Returns the records of a held-out set."""
        lines = (self.work / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]
