"""Attention: every position asks (query), every visible position answers (key) and gives (value)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.dropout import current_rate, drop
from regard.model.kernels import fused
from regard.model.kernels.compute_mode import fused_training_kernels
from regard.model.linear import Linear
from regard.model.observe import edited, see, watching
from regard.model.positions import RotaryPositions
from regard.settings import ModelSettings


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

    With fewer key and value heads than query heads, each serves a group of queries (Ainslie et al., 2023).
    """

    def __init__(self, settings: ModelSettings, rotary: RotaryPositions | None = None) -> None:
        super().__init__()
        width, bias = settings.width, settings.bias
        self.heads, self.groups = settings.heads, settings.query_groups
        self.query = Linear(width, self.heads * settings.head_width, bias)
        self.key = Linear(width, self.groups * settings.head_width, bias)
        self.value = Linear(width, self.groups * settings.head_value_width, bias)
        self.output = Linear(self.heads * settings.head_value_width, width, bias)
        self.rotary = rotary
        self.dropout = settings.attention_dropout

    def forward(self, x: Tensor, memory: Tensor, bias: Bias, cache: KeyValues | None = None) -> Tensor:
        """Positions of x [B, T, D] look at positions of memory [B, S, D] -> [B, T, D].

        `bias` (see `Bias`) says who may look at whom; `cache` holds keys and values computed before.
        """
        if cache is None and (kernels := self.usable_kernels(x, memory, bias)):
            return self.fused_forward(kernels, x, memory, bias)
        query = split_heads(self.query(x), self.heads)  # [B, H, T, K]
        if self.rotary is not None:
            query = self.rotary(query, cache.length if cache else 0)
        key, value = self.keys_values(memory, cache)  # [B, G, S, K]
        query = see("query", query, "batch head query key_width")
        key = see("key", key, "batch group key key_width")
        value = see("value", value, "batch group key value_width")
        rows = query.shape[0]
        if rows > key.shape[0]:  # hypotheses of one sentence share its memory: they become positions that ask
            query = query.unflatten(0, (key.shape[0], -1)).transpose(1, 2).flatten(2, 3)
        if self.groups < self.heads:
            key, value = (t.repeat_interleave(self.heads // self.groups, 1) for t in (key, value))
        context = attend(query, key, value, bias, current_rate(self.dropout) if self.training else 0.0)  # [B, H, T, K]
        if rows > key.shape[0]:
            context = context.unflatten(2, (rows // key.shape[0], -1)).transpose(1, 2).flatten(0, 1)
        context = see("context", context, "batch head query value_width")
        if watching():
            see("contributions", self.contributions(context), "batch head query width")
        return see("output", self.output(join_heads(context)), "batch query width")

    def usable_kernels(self, x: Tensor, memory: Tensor, bias: Bias) -> fused.Library | None:
        """Returns the kernels for `fused_forward`, if it can do what is asked and the run is not observed."""
        short = max(x.shape[1], memory.shape[1]) <= fused.LONGEST
        plain = self.groups == self.heads and self.key.out_features == self.value.out_features and not self.dropout
        simple = bias is None or isinstance(bias, str) or bias.shape == (len(x), 1, 1, memory.shape[1])
        if not (self.training and short and plain and simple) or watching():
            return None
        return fused_training_kernels(x, memory)

    def fused_forward(self, kernels: fused.Library, x: Tensor, memory: Tensor, bias: Bias) -> Tensor:
        """Computes the same as `forward`, with everything between the projections in one compiled pass."""
        query, key, value = self.query(x), self.key(memory), self.value(memory)
        angles = None if self.rotary is None else self.rotary.angles(0, max(x.shape[1], memory.shape[1]), x)
        causal, padding = isinstance(bias, str), None if bias is None or isinstance(bias, str) else bias[:, 0, 0]
        return self.output(fused.attend(kernels, query, key, value, self.heads, padding, causal, angles))

    def keys_values(self, memory: Tensor, cache: KeyValues | None) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> keys [B, G, S, K] and values, those of earlier steps included."""
        if cache is not None and cache.complete:
            return cache.keys, cache.values
        key = split_heads(self.key(memory), self.groups)
        value = split_heads(self.value(memory), self.groups)
        if self.rotary is not None:
            key = self.rotary(key, cache.length if cache else 0)
        return (key, value) if cache is None else cache.extend(key, value)

    def contributions(self, context: Tensor) -> Tensor:
        """[B, H, T, K] -> [B, H, T, D]: what each head adds to the output; with the bias they sum to it."""
        per_head = self.output.weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # [H, K, D]
        return context @ per_head


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Bias, dropout: float = 0.0) -> Tensor:
    """softmax(query keyᵀ / sqrt(K) + bias) value, [B, H, T, K] and [B, H, S, K] -> [B, H, T, K].

    The fast path; while somebody looks, the readable one runs beside it and shows its steps, and where these are
    changed, its result is the one that counts.
    """
    if watching():
        context = attend_readably(query, key, value, bias)
        if edited():
            return context
    long = query.shape[2] > 1 and query.shape[2] * key.shape[2] > SHORT
    if query.device.type != "cpu" or (long and not dropout):
        if isinstance(bias, str):
            return F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True)
        return F.scaled_dot_product_attention(query, key, value, bias, dropout)
    batch, heads, length, width = query.shape
    query, key, value = (t.flatten(0, 1) for t in (query, key, value))  # [B * H, T, K]
    scale = 1 / math.sqrt(width)
    bias = spelt_out(bias, query)
    if bias is None:
        scores = torch.bmm(query * scale, key.mT)
    else:
        rows = bias.expand(batch, heads, length, -1).flatten(0, 1)
        scores = torch.baddbmm(rows, query, key.mT, alpha=scale)
    weights = drop(scores.softmax(-1), dropout)
    return torch.bmm(weights, value).unflatten(0, (batch, heads))


SHORT = 0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 64 * 64
"""Up to so many scores in a head, two batched products beat PyTorch's fused attention, which depends on the CPU."""


def attend_readably(query: Tensor, key: Tensor, value: Tensor, bias: Bias) -> Tensor:
    """The same step by step: the reference that the fast path is tested against."""
    axes = "batch head query key"
    bias = spelt_out(bias, query)
    scores = see("scores", query @ key.mT, axes)
    scaled = see("scaled", scores / math.sqrt(query.shape[-1]), axes)
    masked = see("masked", scaled if bias is None else scaled + bias, axes)
    weights = see("weights", masked.softmax(-1), axes)
    return weights @ value


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H * K] -> [B, H, T, K]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, H, T, K] -> [B, T, H * K]"""
    return x.transpose(1, 2).flatten(2)


def causal_mask(length: int, start: int = 0, device: torch.device | None = None) -> Tensor:
    """[T, S] true where position start + i may look: at positions 0 ... start + i."""
    return torch.ones(length, start + length, dtype=torch.bool, device=device).tril(start)


def mask_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores before the softmax: 0 where `mask` is true, minus infinity elsewhere.

    A row that may look nowhere would become 0 / 0; it is left unmasked, so that its result is finite.
    """
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)
    return bias.masked_fill(~mask.any(-1, keepdim=True), 0.0)


Bias = Tensor | Literal["causal"] | None
"""What is added to the scores (see `mask_bias`): nothing, a tensor that fits [B, H, T, S], or that of T positions
none of which looks ahead, which PyTorch's fused attention needs not be told number by number."""


def spelt_out(bias: Bias, query: Tensor) -> Tensor | None:
    """A bias as numbers; query [..., T, K]."""
    if not isinstance(bias, str):
        return bias
    return mask_bias(causal_mask(query.shape[-2], 0, query.device)[None, None], query.dtype)


class KeyValues:
    """Keys and values [B, G, S, K] that one attention has computed; `fixed` ones never grow."""

    def __init__(self, *, fixed: bool = False) -> None:
        self.fixed = fixed
        self.keys = self.values = torch.empty(0)

    @property
    def length(self) -> int:
        return self.keys.shape[2] if self.keys.numel() else 0

    @property
    def complete(self) -> bool:
        return self.fixed and self.length > 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Appends along S; returns all keys and values so far."""
        if self.length:
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        self.keys, self.values = keys, values
        return keys, values

    def select(self, rows: Tensor) -> None:
        if self.length:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Cache:
    """What a decoder remembers between steps, so that a step costs one position, not all."""

    def __init__(self, layers: int) -> None:
        self.own = [KeyValues() for _ in range(layers)]
        self.memory = [KeyValues(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        return self.own[0].length

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Keeps these hypotheses in this order, and of the memory these sentences (none: all)."""
        for layer in self.own:
            layer.select(rows)
        if sentences is not None:
            for layer in self.memory:
                layer.select(sentences)
