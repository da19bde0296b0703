"""A running mean of the weights, which scores better than the current weights while the learning rate is high."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.training.distributed import local_part


class RunningMean:
    """The exponential moving average of a model's weights (Polyak & Juditsky, 1992); empty if the decay is 0."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.learning = {name: p for name, p in model.named_parameters() if p.requires_grad} if decay else {}
        self.values: dict[str, Tensor] = {name: local_part(p.detach()).clone() for name, p in self.learning.items()}

    def update(self, step: int) -> None:
        """Adds the weights of update number `step`; the decay is lower at first, so that early weights count less."""
        if self.values:
            weight = 1 - min(self.decay, (1 + step) / (10 + step))
            weights = [local_part(p.detach()) for p in self.learning.values()]
            torch._foreach_lerp_(list(self.values.values()), weights, weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replaces the weights of the model by the mean within a `with` block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self.learning.items():
            if hasattr(parameter, "to_local"):  # FSDP keeps references to these rows, so copy in place
                rows = local_part(parameter.detach())
                self.values[name], _ = rows.clone(), rows.copy_(self.values[name])
            else:
                self.values[name], parameter.data = parameter.data, self.values[name]
