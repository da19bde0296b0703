"""Heads of an encoder, which predict hidden tokens or classify the text (BERT; Devlin et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.dropout import Dropout
from regard.model.layers import ACTIVATIONS, build_norm
from regard.model.linear import Linear
from regard.model.observe import see
from regard.settings import ModelSettings


class FillHead(nn.Module):
    """Predicts the token at each position: a dense layer, its nonlinearity and norm, then the logits."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.dense = Linear(settings.width, settings.width)
        self.activation = ACTIVATIONS[settings.activation]
        self.norm = build_norm(settings)
        self.logits = Linear(settings.width, vocabulary)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""
        return see("logits", self.logits(self.transform(states)), "batch position token")

    def transform(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., D], before the logits."""
        return self.norm(self.activation(self.dense(states)))


class Pooler(nn.Module):
    """A dense layer over the first position, whose result represents the whole text."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.dense = Linear(settings.width, settings.width)
        self.activation = torch.tanh if settings.pooler == "tanh" else F.relu
        self.dropout = Dropout(settings.dropout)

    def forward(self, first: Tensor) -> Tensor:
        """[B, D] -> [B, D]"""
        return self.dropout(self.activation(self.dense(first)))


def mean_state(states: Tensor, keep: Tensor | None) -> Tensor:
    """[B, T, D] and keep [B, T] -> [B, D], the mean over what is not padding."""
    if keep is None:
        return states.mean(1)
    weights = keep[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)
