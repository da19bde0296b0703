"""The optimizers (Adam and Muon) and the learning rate schedule."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from regard.model.layers import TABLES
from regard.settings import TrainingSettings
from regard.training.distributed import ProcessGroup

MOMENTUM = 0.95
UPDATE_SIZE = 0.2
"""Root mean square of Muon's update at rate 1, about that of Adam so that one rate suits both (Liu et al., 2025)."""


def build_optimizer(
    model: nn.Module, settings: TrainingSettings, group: ProcessGroup | None = None
) -> torch.optim.Optimizer:
    """Returns Adam (Kingma & Ba, 2015), or Muon for the layers' matrices with Adam for all other weights.

    Weight decay is decoupled (Loshchilov & Hutter, 2019) and applies only to matrices and embedding tables, because
    biases and norm scales should not shrink. With Muon, it does not apply to tables either: their learning rate is so
    high that rarely updated rows would vanish.
    """
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    matrices = [p for name, p in learning.items() if p.dim() == 2 and not name.endswith(TABLES)]
    if settings.optimizer == "adam":
        matrices = []
    with_muon = {id(p) for p in matrices}
    others = [p for p in learning.values() if id(p) not in with_muon]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": 0.0 if matrices else settings.weight_decay},
        {"params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0},
    ]
    adam: dict[str, Any] = {
        "lr": 0.0,  # set before each update
        "betas": tuple(settings.betas),
        "eps": settings.epsilon,
        "weight_decay": settings.weight_decay,
        "fused": True,
    }
    if not matrices:
        return torch.optim.AdamW(groups, **adam)
    bfloat16 = settings.precision == "bfloat16"
    return Muon(
        matrices, groups, group=group or ProcessGroup(), rate_factor=settings.table_rate, bfloat16=bfloat16, **adam
    )


class Muon(torch.optim.AdamW):
    """Muon for `matrices`, and AdamW at `rate_factor` times the learning rate for `others` (Jordan et al., 2024).

    A few strong directions dominate a gradient. Muon replaces the momentum by the nearest orthogonal matrix, so that
    weak directions, which rare examples need, count as much as strong ones. With several processes, each computes this
    for some of the matrices.
    """

    def __init__(
        self,
        matrices: Sequence[Parameter],
        others: list[dict[str, Any]],
        *,
        group: ProcessGroup,
        rate_factor: float = 1.0,
        bfloat16: bool = False,
        **adam: Any,
    ) -> None:
        super().__init__([{**each, "rate_factor": rate_factor} for each in others], **adam)
        self.product_type = torch.bfloat16 if bfloat16 else torch.float32
        self.group = group
        self.add_param_group({"params": list(matrices)})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        group = self.param_groups[-1]
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape[parameter.shape].append(parameter)
        for shape, parameters in by_shape.items():  # batch the products of all matrices with the same shape
            momenta = torch.stack(self._momenta(parameters))
            directions = self.group.map_rows(partial(orthogonalize, dtype=self.product_type), momenta)
            length = group["lr"] * UPDATE_SIZE * max(shape) ** 0.5
            if group["weight_decay"]:
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_sub_(parameters, list(directions.unbind()), alpha=length)
            for parameter in parameters:
                parameter.grad = None  # Adam skips parameters without a gradient
        super().step()

    def _momenta(self, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Updates the running means of the gradients; returns the Nesterov momenta."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if "exp_avg" not in self.state[parameter]:
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
        return torch._foreach_lerp(gradients, means, MOMENTUM)


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """[N, A, B] -> [N, A, B], with the same singular vectors, and singular values between about 0.7 and 1.2.

    Applies an odd polynomial that quickly raises small singular values five times, with products of type `dtype`.
    """
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-12)
    wide = x.shape[-2] <= x.shape[-1]
    x = (x if wide else x.mT).to(dtype)
    for _ in range(5):
        square = x @ x.mT
        factor = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        factor.diagonal(dim1=-2, dim2=-1).add_(3.4445)
        x = factor @ x
    return (x if wide else x.mT).to(matrices.dtype)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of each parameter group, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)


def learning_rate(step: int, settings: TrainingSettings, width: int) -> float:
    """Returns the learning rate of update number `step`, counted from 1."""
    warmup, peak = settings.warmup, settings.learning_rate
    if settings.schedule == "paper":  # Vaswani et al. (2017), section 5.3
        return float(width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5))
    if step < warmup:
        return peak * step / warmup
    left = max(0.0, (settings.steps - step) / max(1, settings.steps - warmup))
    shares = {
        "inverse-sqrt": math.sqrt(max(warmup, 1) / step),
        "cosine": 0.5 * (1 - math.cos(math.pi * left)),
        "linear": left,
        "constant": 1.0,
    }
    return peak * shares[settings.schedule]
