"""Defines the interface of training tasks: batches, loss and scores."""

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
"""Number of dev set texts to store with the model's outputs."""

Assessment = tuple[dict[str, float], list[tuple[str, str]]]
"""The scores of a model on the dev set, and one sample output as (label, text) lines."""


class Task(ABC):
    """A training task, whose data come from a folder written by the `Preparation` of the same task."""

    unit: str  # what an example is: pairs, tokens or texts
    metrics: tuple[str, ...]  # allowed values of training.metric
    shown_scores: tuple[str, ...]  # scores to display besides the perplexity
    confidence: Confidence | None = None  # for a translator, after `report` has calibrated it on the dev set

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        self.work, self.settings, self.vocabularies, self.device = work, settings, vocabularies, device
        self.specials = vocabularies.target.specials

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch, each as row numbers of the training set."""

    @abstractmethod
    def batch(self, rows: Rows, update: int) -> Batch:
        """Returns a batch for the model; its random choices depend only on the update number."""

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """Returns `batch(rows, update).share(part, parts)`, without computing the other rows."""
        return self.batch(rows[part::parts], update)

    @abstractmethod
    def dev_batches(self) -> Iterator[Batch]:
        """Yields the whole dev set in a fixed order."""

    @abstractmethod
    def loss(self, model: Model, batch: Any, smoothing: float) -> Loss:
        """Returns the model's loss on a batch."""

    @abstractmethod
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Scores a model on the dev set, given its total surprise there; `number` selects the sample."""

    @abstractmethod
    def report(self, contents: Contents, name: str) -> list[str]:
        """Returns the final scores on a held-out set as lines that also say how they were computed."""

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns a few dev set texts with the model's outputs, which must be deterministic."""
        return []

    def held_out(self, name: str) -> list[dict[str, Any]]:
        lines = (self.work / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]
