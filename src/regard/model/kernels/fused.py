"""What stands between the products of a training step, in one pass each, by a small C++ library (`fused.cpp`).

On a CPU a small model spends as much time here as in its products (docs/log.md). Each function says in its docstring
what it computes; the readable path that it is tested against is where it is called from, and is taken wherever this
one cannot be: without a compiler at installation, on a GPU, in other types than float32.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.model.kernels.dropout_masks import Mask

LONGEST = 128
"""Sequences up to so many positions are attended to here; longer ones suit PyTorch's own attention better."""


@cache
def library(instructions: str = "") -> Library | None:
    """The compiled library, for these instructions or the best that this CPU has; none where it cannot be loaded."""
    for path in sorted(Path(__file__).parent.glob("fused_core*.so")):
        try:
            return Library(ctypes.CDLL(str(path)), instructions or best_instructions())
        except (OSError, AttributeError):  # built for another machine, or by another version of Regard
            continue
    return None


def best_instructions() -> str:
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "portable")


class Library:
    """The functions of `fused.cpp`, compiled for a set of instructions; Python's lock is not held meanwhile."""

    def __init__(self, loaded: ctypes.CDLL, instructions: str) -> None:
        self.instructions = instructions
        pointer, number, real = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
        short, wide = ctypes.c_uint32, ctypes.c_uint64
        for name, kinds in {
            "norm": [pointer] * 4 + [number] * 2 + [real],
            "norm_back": [pointer] * 6 + [number] * 2,
            "drop": [pointer] * 3 + [number, short, short, wide, short, real],
            "gate": [pointer] * 3 + [number],
            "gate_back": [pointer] * 5 + [number],
            "attend": [pointer] * 8 + [number] * 5 + [ctypes.c_int],
            "attend_back": [pointer] * 10 + [number] * 5,
            "cross_entropy": [pointer] * 2 + [number] * 2 + [real] + [pointer] * 2,
        }.items():
            function = getattr(loaded, f"regard_{name}_{instructions}")
            function.argtypes, function.restype = kinds, None
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for the types alone: what is declared above is found before
        raise AttributeError(name)


def norm(c: Library, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean of x² + epsilon) * gain, over the last axis."""
    result: Tensor = _Norm.apply(c, x, gain, epsilon)
    return result


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out, inverses = torch.empty_like(x), x.new_empty(rows)
        c.norm(x.data_ptr(), gain.data_ptr(), out.data_ptr(), inverses.data_ptr(), rows, width, epsilon)
        ctx.save_for_backward(x, gain, inverses)
        ctx.library = c
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x, gain, inverses = ctx.saved_tensors
        up = upstream[0].contiguous()
        by_x, by_gain = torch.empty_like(x), torch.empty_like(gain)
        places = (each.data_ptr() for each in (x, gain, inverses, up, by_x, by_gain))
        ctx.library.norm_back(*places, len(inverses), x.shape[-1])
        return None, by_x, by_gain, None


def drop(c: Library, x: Tensor | None, y: Tensor, mask: Mask) -> Tensor:
    """y with some elements dropped and the others scaled up, added to x if there is one; `dropout.Masks` has masks."""
    result: Tensor = _Drop.apply(c, x, y, mask)
    return result


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, x: Tensor | None, y: Tensor, mask: Mask) -> Tensor:
        ctx.library, ctx.mask, ctx.adds = c, mask, x is not None
        return _drop(c, x, y, mask)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return None, upstream[0] if ctx.adds else None, _drop(ctx.library, None, upstream[0], ctx.mask), None


def _drop(c: Library, x: Tensor | None, y: Tensor, mask: Mask) -> Tensor:
    y, x = y.contiguous(), None if x is None else x.contiguous()
    out = torch.empty_like(y)
    c.drop(None if x is None else x.data_ptr(), y.data_ptr(), out.data_ptr(), y.numel(), *mask)
    return out


def gate(c: Library, gates: Tensor, rises: Tensor) -> Tensor:
    """silu(gates) * rises."""
    result: Tensor = _Gate.apply(c, gates, rises)
    return result


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, gates: Tensor, rises: Tensor) -> Tensor:
        gates, rises = gates.contiguous(), rises.contiguous()
        out = torch.empty_like(gates)
        c.gate(gates.data_ptr(), rises.data_ptr(), out.data_ptr(), gates.numel())
        ctx.save_for_backward(gates, rises)
        ctx.library = c
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        gates, rises = ctx.saved_tensors
        by_gates, by_rises = torch.empty_like(gates), torch.empty_like(rises)
        tensors = (gates, rises, upstream[0].contiguous(), by_gates, by_rises)
        ctx.library.gate_back(*(each.data_ptr() for each in tensors), gates.numel())
        return None, by_gates, by_rises


def attend(
    c: Library,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    bias: Tensor | None,
    causal: bool,
    angles: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Attention of [B, T, H * K] to keys and values [B, S, H * K] -> [B, T, H * K], heads side by side as they came.

    `bias` [B, S] is added to the scores; `angles` are the cosines and sines by which queries and keys are turned first.
    """
    result: Tensor = _Attend.apply(c, query, key, value, heads, bias, causal, angles)
    return result


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        c: Library,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        heads: int,
        bias: Tensor | None,
        causal: bool,
        angles: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, queries, width = query.shape
        keys = key.shape[1]
        weights = query.new_empty(batch, heads, queries, -(-keys // 16) * 16)  # the most that rows are filled up to
        out = torch.empty_like(query)
        sizes = (batch, heads, queries, keys, width // heads)
        cosines, sines = (None, None) if angles is None else (angle.data_ptr() for angle in angles)
        bias = None if bias is None else bias.contiguous()
        c.attend(
            *(query.data_ptr(), key.data_ptr(), value.data_ptr(), None if bias is None else bias.data_ptr()),
            *(cosines, sines, weights.data_ptr(), out.data_ptr(), *sizes, causal),
        )
        ctx.save_for_backward(query, key, value, weights)
        ctx.library, ctx.sizes, ctx.angles = c, sizes, angles
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        query, key, value, weights = ctx.saved_tensors
        by_query, by_key, by_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        cosines, sines = (None, None) if ctx.angles is None else (angle.data_ptr() for angle in ctx.angles)
        up = upstream[0].contiguous()
        ctx.library.attend_back(
            *(query.data_ptr(), key.data_ptr(), value.data_ptr(), cosines, sines, weights.data_ptr(), up.data_ptr()),
            *(by_query.data_ptr(), by_key.data_ptr(), by_value.data_ptr(), *ctx.sizes),
        )
        return None, by_query, by_key, by_value, None, None, None, None
