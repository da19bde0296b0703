"""What moves the weights, and the course of its learning rate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from regard.model.layers import TABLES
from regard.settings import TrainingSettings
from regard.training.distributed import Group
from regard.training.muon import Muon


def build_optimizer(model: nn.Module, settings: TrainingSettings, group: Group | None = None) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba, 2015), or Muon for the matrices of the layers and Adam for the rest.

    Weight decay, if any, is decoupled (Loshchilov & Hutter, 2019). Only matrices and tables decay: a bias, or the
    factor of a norm, is not the smaller the better. Beside Muon tables do not either: they move at a high rate, by
    which they would fade between two updates that ask for a row.
    """
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    matrices = [p for name, p in learning.items() if p.dim() == 2 and not name.endswith(TABLES)]
    if settings.optimizer == "adam":
        matrices = []
    taken = {id(p) for p in matrices}
    rest = [p for p in learning.values() if id(p) not in taken]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.0 if matrices else settings.weight_decay},
        {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
    ]
    beta1, beta2 = settings.betas
    adam: dict[str, Any] = {
        "lr": 0.0,  # set before each update
        "betas": (beta1, beta2),
        "eps": settings.epsilon,
        "weight_decay": settings.weight_decay,
        "fused": True,
    }
    rounds = settings.precision == "bfloat16"
    if not matrices:
        return torch.optim.AdamW(groups, **adam)
    return Muon(matrices, groups, group=group or Group(), times=settings.table_rate, rounds=rounds, **adam)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of the next update; a group may learn at a multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("times", 1.0)


def learning_rate(step: int, settings: TrainingSettings, width: int) -> float:
    """The rate of update number `step`, counted from 1."""
    warmup, peak = settings.warmup, settings.learning_rate
    if settings.schedule == "paper":  # Vaswani et al. (2017), section 5.3
        return float(width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5))
    if step < warmup:
        return peak * step / warmup
    left = max(0.0, (settings.steps - step) / max(1, settings.steps - warmup))
    return (
        peak
        * {
            "inverse-sqrt": math.sqrt(max(warmup, 1) / step),
            "cosine": 0.5 * (1 - math.cos(math.pi * left)),
            "linear": left,
            "constant": 1.0,
        }[settings.schedule]
    )
