"""A running mean of the weights, which is better than any of them while the learning rate is high."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.training.distributed import held


class RunningMean:
    """Exponentially forgets old weights (Polyak & Juditsky, 1992); with a decay of 0 it is the weights themselves."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.learning = {name: p for name, p in model.named_parameters() if p.requires_grad} if decay else {}
        self.values: dict[str, Tensor] = {name: held(p.detach()).clone() for name, p in self.learning.items()}

    def update(self, step: int) -> None:
        """Takes in the weights after update number `step`; the first ones, which are bad, are forgotten sooner."""
        if self.values:
            weight = 1 - min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.values.values()), [held(p.detach()) for p in self.learning.values()], weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it, the model has the mean for weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self.learning.items():
            if hasattr(parameter, "to_local"):  # others hold parts of it: its place in memory must not change
                mine = held(parameter.detach())
                self.values[name], _ = mine.clone(), mine.copy_(self.values[name])
            else:
                self.values[name], parameter.data = parameter.data, self.values[name]
