"""Multi-head attention, its masks, and the cache of keys and values."""

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
from regard.model.observe import has_edits, is_observed, see
from regard.model.positions import RotaryPositions
from regard.settings import ModelSettings

Bias = Tensor | Literal["causal"] | None
"""A term added to the attention scores (see `mask_bias`): None, a tensor that broadcasts to [B, H, T, S], or "causal",
which masks later positions and for which PyTorch's fused attention needs no tensor."""


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

    If there are fewer key and value heads than query heads, each serves a group of query heads (Ainslie et al., 2023).
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
        """x [B, T, D], which attends to memory [B, S, D] -> [B, T, D].

        `bias` masks positions; `cache` holds keys and values of earlier calls.
        """
        if cache is None and (library := self.fused_library(x, memory, bias)):
            return self.fused_forward(library, x, memory, bias)
        cache = KeyValues() if cache is None else cache
        query = split_heads(self.query(x), self.heads)  # [B, H, T, K]
        if not cache.complete:
            key, value = split_heads(self.key(memory), self.groups), split_heads(self.value(memory), self.groups)
            if self.rotary is not None:
                query, key = self.rotary(query, cache.length), self.rotary(key, cache.length)
            cache.extend(key, value)
        query = see("query", query, "batch head query key_width")
        key = see("key", cache.keys, "batch group key key_width")  # [B, G, S, K]
        value = see("value", cache.values, "batch group key value_width")
        context = attend(query, key, value, bias, current_rate(self.dropout) if self.training else 0.0)
        context = see("context", context, "batch head query value_width")  # [B, H, T, K]
        if is_observed():
            see("contributions", self.contributions(context), "batch head query width")
        return see("output", self.output(join_heads(context)), "batch query width")

    def fused_library(self, x: Tensor, memory: Tensor, bias: Bias) -> fused.Library | None:
        """Returns the compiled kernels if `fused_forward` can replace `forward` on these tensors."""
        short = max(x.shape[1], memory.shape[1]) <= fused.LONGEST
        plain = self.groups == self.heads and self.key.out_features == self.value.out_features and not self.dropout
        simple = bias is None or isinstance(bias, str) or bias.shape == (len(x), 1, 1, memory.shape[1])
        if not (self.training and short and plain and simple) or is_observed():
            return None
        return fused_training_kernels(x, memory)

    def fused_forward(self, library: fused.Library, x: Tensor, memory: Tensor, bias: Bias) -> Tensor:
        """Computes the same as `forward`, with one compiled kernel for everything between the projections."""
        query, key, value = self.query(x), self.key(memory), self.value(memory)
        angles = None if self.rotary is None else self.rotary.angles(0, max(x.shape[1], memory.shape[1]), x)
        causal, padding = isinstance(bias, str), None if bias is None or isinstance(bias, str) else bias[:, 0, 0]
        return self.output(fused.attend(library, query, key, value, self.heads, padding, causal, angles))

    def contributions(self, context: Tensor) -> Tensor:
        """[B, H, T, K] -> [B, H, T, D], the contribution of each head; with the bias, they sum to the output."""
        per_head = self.output.weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # [H, K, D]
        return context @ per_head


def attend_readably(query: Tensor, key: Tensor, value: Tensor, bias: Bias) -> Tensor:
    """softmax(query keyᵀ / sqrt(K) + bias) value, step by step: [B, H, T, K] and [B, H, S, K] -> [B, H, T, K]."""
    axes = "batch head query key"
    bias = bias_tensor(bias, query)
    scores = see("scores", query @ key.mT, axes)
    scaled = see("scaled", scores / math.sqrt(query.shape[-1]), axes)
    masked = see("masked", scaled if bias is None else scaled + bias, axes)
    weights = see("weights", masked.softmax(-1), axes)
    return weights @ value


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Bias, dropout: float = 0.0) -> Tensor:
    """[B, H, T, K] and [B, G, S, K] -> [B, H, T, K], like `attend_readably` but in fewer and faster steps.

    Hypotheses of one sentence may share its keys and values: then there are several queries for each of them.
    """
    hypotheses, heads = len(query) // len(key), query.shape[1]
    if hypotheses > 1:  # turn the hypotheses into query positions
        query = query.unflatten(0, (-1, hypotheses)).transpose(1, 2).flatten(2, 3)
    if key.shape[1] < heads:
        key, value = (each.repeat_interleave(heads // each.shape[1], 1) for each in (key, value))
    if is_observed():
        context = attend_readably(query, key, value, bias)
    if not has_edits():  # only edits may change the result; observing a run must not
        context = _attend_fast(query, key, value, bias, dropout)
    return context if hypotheses == 1 else context.unflatten(2, (hypotheses, -1)).transpose(1, 2).flatten(0, 1)


def _attend_fast(query: Tensor, key: Tensor, value: Tensor, bias: Bias, dropout: float) -> Tensor:
    long = query.shape[2] > 1 and query.shape[2] * key.shape[2] > SHORT
    if query.device.type != "cpu" or (long and not dropout):
        mask = None if isinstance(bias, str) else bias
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, isinstance(bias, str))
    batch, heads, length, width = query.shape
    query, key, value = (each.flatten(0, 1) for each in (query, key, value))  # [B * H, T, K]
    scale = 1 / math.sqrt(width)
    bias = bias_tensor(bias, query)
    if bias is None:
        scores = torch.bmm(query * scale, key.mT)
    else:
        rows = bias.expand(batch, heads, length, -1).flatten(0, 1)
        scores = torch.baddbmm(rows, query, key.mT, alpha=scale)
    weights = drop(scores.softmax(-1), dropout)
    return torch.bmm(weights, value).unflatten(0, (batch, heads))


SHORT = 0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 64 * 64
"""Up to this number of scores per head, two batched matrix products beat PyTorch's fused attention on this CPU."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H * K] -> [B, H, T, K]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, H, T, K] -> [B, T, H * K]"""
    return x.transpose(1, 2).flatten(2)


def causal_mask(length: int, start: int = 0, device: torch.device | None = None) -> Tensor:
    """Returns a mask [T, S]; row i is true at positions 0 ... start + i, which that position may see."""
    return torch.ones(length, start + length, dtype=torch.bool, device=device).tril(start)


def mask_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts a mask to a bias: 0 where `mask` is true, minus infinity elsewhere.

    A row without any true element stays unmasked, because its softmax would be 0 / 0.
    """
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)
    return bias.masked_fill(~mask.any(-1, keepdim=True), 0.0)


def bias_tensor(bias: Bias, query: Tensor) -> Tensor | None:
    """Converts a bias for queries [..., T, K] to a tensor; None stays None."""
    if not isinstance(bias, str):
        return bias
    return mask_bias(causal_mask(query.shape[-2], 0, query.device)[None, None], query.dtype)


class KeyValues:
    """A cache of the keys and values [B, G, S, K] of one attention layer; a `fixed` one never grows."""

    def __init__(self, *, fixed: bool = False) -> None:
        self.fixed = fixed
        self.keys = self.values = torch.empty(0)

    @property
    def length(self) -> int:
        return self.keys.shape[2] if self.keys.numel() else 0

    @property
    def complete(self) -> bool:
        return self.fixed and self.length > 0

    def extend(self, keys: Tensor, values: Tensor) -> None:
        if self.length:
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        self.keys, self.values = keys, values

    def select(self, rows: Tensor) -> None:
        if self.length:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Cache:
    """The cached keys and values of all decoder layers: each step computes one position instead of all."""

    def __init__(self, layers: int) -> None:
        self.self_attention = [KeyValues() for _ in range(layers)]
        self.cross_attention = [KeyValues(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        return self.self_attention[0].length

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Keeps these hypotheses in this order, and the memory of these sentences (None: all)."""
        for layer in self.self_attention:
            layer.select(rows)
        if sentences is not None:
            for layer in self.cross_attention:
                layer.select(sentences)
