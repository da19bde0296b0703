"""The gradient of an update: of the rows of this process, in as many passes as the memory asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.model.dropout import masks_from
from regard.settings import TrainingSettings
from regard.training.distributed import Group
from regard.training.events import Note
from regard.training.task import Batch, Task
from regard.weights import Model


class Objective(nn.Module):
    """The loss of a batch as a module: what shares gradients between processes watches a module being called."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, smoothing: float) -> tuple[Tensor, float]:
        """A batch -> the sums of the loss and of the surprise."""
        loss = self.task.loss(self.model, batch, smoothing)
        return loss.total, loss.surprise


@dataclass(frozen=True)
class Share:
    """The rows of a batch that one process works on."""

    batch: Batch
    counts: bool = True  # false where it has none, and works on another's for nothing, since all must call alike

    @property
    def tokens(self) -> int:
        return self.batch.tokens if self.counts else 0

    @property
    def seen(self) -> int:
        return self.batch.seen if self.counts else 0


class Gradients:
    """Fills in the gradients of the weights."""

    def __init__(
        self,
        module: nn.Module,
        group: Group,
        settings: TrainingSettings,
        precision: Callable[[], AbstractContextManager[Any]],
        scaler: torch.amp.GradScaler,
    ) -> None:
        self.module, self.group, self.settings, self.precision, self.scaler = module, group, settings, precision, scaler
        self.parts = 1  # in which the rows of a batch are worked on, one after the other
        self.final = False  # whether other processes may have begun to take in what is computed here
        self.notes: list[Note] = []

    def of(self, shares: list[Share], tokens: int, step: int, strength: float) -> tuple[float, float]:
        """Sums the gradients of the loss over `shares`, divided by `tokens`; returns the sums of loss and surprise.

        `strength` is the share of dropout's rates that counts. Where the memory does not suffice, all is done again
        with half the rows at a time, from now on.
        """
        while True:
            try:
                return self.attempt(shares, tokens, step, strength)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self.split(shares)

    def attempt(self, shares: list[Share], tokens: int, step: int, strength: float) -> tuple[float, float]:
        total = surprise = 0.0
        pieces = list(self.pieces(shares))
        for i, (share, key) in enumerate(pieces):
            last, self.final = i == len(pieces) - 1, False
            with self.group.summing(last):
                with masks_from(self.settings.seed, step, *key, strength=strength), self.precision():
                    loss, nats = self.module(share.batch, self.settings.label_smoothing)
                scaled = loss * self.group.size / tokens if share.counts else loss * 0.0
                self.final = last and self.group.size > 1
                self.scaler.scale(scaled).backward()
            if share.counts:
                total, surprise = total + loss.item(), surprise + nats
        return total, surprise

    def pieces(self, shares: list[Share]) -> Iterator[tuple[Share, tuple[int, ...]]]:
        """What is worked on at a time, and the numbers that its dropout masks depend on."""
        rank = self.group.rank
        for number, share in enumerate(shares):
            for part in range(min(self.parts, len(share.batch))):
                plain = rank == 0 and self.parts == 1
                key = (number,) if plain else (number, rank, part, self.parts)
                batch = share.batch if self.parts == 1 else share.batch.share(part, self.parts)
                yield Share(batch, share.counts), key

    def tell(self) -> list[Note]:
        """What has to be said, once."""
        notes, self.notes = self.notes, []
        return notes

    def split(self, shares: list[Share]) -> None:
        """Half the rows at a time, if that is possible."""
        rows = max(len(share.batch) for share in shares)
        if self.parts >= rows or self.final or self.group.sharded:
            raise ModelError(
                f"not enough memory for {-(-rows // self.parts)} rows of a batch; the last checkpoint is kept: resume "
                "with a smaller --training.batch_tokens (and --training.accumulate), or with --training.recompute true"
            ) from None
        self.module.zero_grad()
        self.parts *= 2
        self.notes.append(
            Note(
                f"not enough memory for a batch: it is worked on in {self.parts} parts from now on, which changes "
                "nothing but the speed and the dropout masks"
            )
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    kinds = MemoryError | torch.OutOfMemoryError
    return isinstance(error, kinds) or any(word in str(error).lower() for word in words)
