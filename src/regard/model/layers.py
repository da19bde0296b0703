"""Transformer layers and their parts: the feed-forward network, and the residual connection with its norm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.model.attention import Attention, Bias, KeyValues
from regard.model.dropout import Dropout
from regard.model.kernels import fused
from regard.model.kernels.compute_mode import computing, fused_training_kernels, mode
from regard.model.linear import Linear
from regard.model.observe import see
from regard.model.positions import RotaryPositions
from regard.settings import ModelSettings


class Layer(nn.Module):
    """Self-attention, cross-attention to the encoder's states, and feed-forward, each with a residual connection.

    Without `cross`, it is a layer of an encoder or, with a causal bias, of GPT.
    """

    def __init__(self, settings: ModelSettings, *, cross: bool, rotary: RotaryPositions | None) -> None:
        super().__init__()
        self.self_attention = Attention(settings, rotary)
        self.self_residual = Residual(settings)
        self.cross_attention = Attention(settings) if cross else None
        self.cross_residual = Residual(settings) if cross else None
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        bias: Bias,
        memory: Tensor | None = None,
        memory_bias: Tensor | None = None,
        self_cache: KeyValues | None = None,
        cross_cache: KeyValues | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        x = self.self_residual(x, lambda y: self.self_attention(y, y, bias, self_cache))
        if self.cross_attention is not None and self.cross_residual is not None:
            cross = self.cross_attention
            x = self.cross_residual(x, lambda y: cross(y, memory, memory_bias, cross_cache))
        return self.feed_forward_residual(x, self.feed_forward)


def recompute(layer: nn.Module, *inputs: Any) -> Tensor:
    """Runs a layer but stores only its inputs; the backward pass runs it again (Chen et al., 2016)."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        now = mode()  # the second run, possibly in another thread, must use the same dropout masks as the first
        masks = None if now.masks is None else now.masks.copy()
        return nullcontext(), computing(bfloat16=now.bfloat16, masks=masks)

    result: Tensor = checkpoint(layer, *inputs, use_reentrant=False, context_fn=contexts)
    return result


class Residual(nn.Module):
    """A residual connection around a sublayer, with its norm.

    Post-norm (the original): norm(x + f(x)). Pre-norm (easier to train; Xiong et al., 2020): x + f(norm(x)).
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.pre = settings.norm == "pre"
        self.norm = build_norm(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        axes = "batch position width"
        if self.pre:
            return see("sum", self.dropout(sublayer(see("norm", self.norm(x), axes)), onto=x), axes)
        return see("norm", self.norm(see("sum", self.dropout(sublayer(x), onto=x), axes)), axes)


class FeedForward(nn.Module):
    """Two linear layers with an activation function between them, applied to each position separately.

    SwiGLU (Shazeer, 2020) adds a third linear layer, whose output passes the activation and scales the first one's.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.rise = Linear(settings.width, settings.hidden, settings.bias)
        self.gate = Linear(settings.width, settings.hidden, settings.bias) if settings.activation == "swiglu" else None
        self.fall = Linear(settings.hidden, settings.width, settings.bias)
        self.activation = ACTIVATIONS[settings.activation]
        self.dropout = Dropout(settings.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        axes = "batch position hidden"
        rise = see("rise", self.rise(x), axes)
        if self.gate is None:
            active = self.activation(rise)
        else:
            active = gated(see("gate", self.gate(x), axes), rise)
        return see("output", self.fall(self.dropout(see("active", active, axes))), "batch position width")


def gated(gate: Tensor, rise: Tensor) -> Tensor:
    if kernels := fused_training_kernels(gate, rise):
        return fused.gate(kernels, gate, rise)
    return F.silu(gate) * rise


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


def build_norm(settings: ModelSettings) -> nn.Module:
    """Returns LayerNorm (Ba et al., 2016), or RMSNorm, which does not subtract the mean (Zhang & Sennrich, 2019)."""
    kind = nn.LayerNorm if settings.norm_kind == "layer" else RMSNorm
    return kind(settings.width, eps=settings.norm_epsilon)


class RMSNorm(nn.RMSNorm):
    """Root mean square normalization: x / sqrt(mean(x²)), times a learned scale per element."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]"""
        if self.eps is not None and (kernels := fused_training_kernels(x, self.weight)):
            return fused.norm(kernels, x, self.weight, self.eps)
        return super().forward(x)


TABLES = ("tokens.weight", "segments.weight", "positions.table", "logits.weight")
"""Suffixes of the names of embedding tables, which hold one vector per token, segment or position."""


def initialize(model: nn.Module, settings: ModelSettings) -> None:
    """Initializes the weights of a model at random.

    Linear layers: Glorot & Bengio (2010), uniform; biases: 0; norms: 1 and 0. Token embeddings: normal with standard
    deviation width^-0.5, so that after scaling by sqrt(width) they match the size of the positions, and as output
    weights they produce logits of size 1; without that scaling: 0.02, as in BERT and GPT-2. Learned positions,
    segments and an untied output layer are initialized like the token embeddings.
    """
    deviation = settings.width**-0.5 if settings.scale_embedding else 0.02
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for name, parameter in model.named_parameters():
        if name.endswith(TABLES):
            with torch.no_grad():
                parameter.normal_(0.0, deviation)
