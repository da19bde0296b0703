"""Runs each training step between two matrix products in a single C++ pass (`fused_training_steps.cpp`).

On a CPU, a small model spends as much time in these steps as in its matrix products (docs/log.md). The code that calls
these functions does the same in PyTorch, and they are tested against it. PyTorch is used if there was no compiler at
installation, on GPUs, and for types other than float32.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.model.dropout import Mask

LONGEST = 128
"""Maximum sequence length for `attend`, in positions; for longer sequences, PyTorch's attention is faster."""


@cache
def library(instructions: str = "") -> Library | None:
    """Loads the kernels for an instruction set, by default this CPU's best; returns None if that fails."""
    for path in sorted(Path(__file__).parent.glob("fused_core*.so")):
        try:
            return Library(ctypes.CDLL(str(path)), instructions or best_instructions())
        except (OSError, AttributeError):  # built for another machine, or by another version of Regard
            continue
    return None


def best_instructions() -> str:
    """Returns the best vector instruction set that this CPU supports."""
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "portable")


class Library:
    """The functions of `fused_training_steps.cpp` for one instruction set; they run without the GIL."""

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

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError; only type checkers need this method, because the functions are attributes."""
        raise AttributeError(name)


def _apply(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:
    result: Tensor = function.apply(*inputs)
    return result


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def norm(c: Library, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Returns x / sqrt(mean(x²) + epsilon) * gain, where the mean is over the last axis."""
    return _apply(_Norm, c, x, gain, epsilon)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out, inverses = torch.empty_like(x), x.new_empty(rows)
        c.norm(*_addresses(x, gain, out, inverses), rows, width, epsilon)
        ctx.save_for_backward(x, gain, inverses)
        ctx.library = c
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x, gain, inverses = ctx.saved_tensors
        by_x, by_gain = torch.empty_like(x), torch.empty_like(gain)
        up = upstream[0].contiguous()
        ctx.library.norm_back(*_addresses(x, gain, inverses, up, by_x, by_gain), len(inverses), x.shape[-1])
        return None, by_x, by_gain, None


def drop(c: Library, x: Tensor | None, y: Tensor, mask: Mask) -> Tensor:
    """Applies a dropout mask to y, and adds x if given."""
    return _apply(_Drop, c, x, y, mask)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, x: Tensor | None, y: Tensor, mask: Mask) -> Tensor:
        ctx.library, ctx.mask, ctx.adds = c, mask, x is not None
        y, x = y.contiguous(), None if x is None else x.contiguous()
        out = torch.empty_like(y)
        c.drop(*_addresses(x, y, out), y.numel(), *mask)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        up = upstream[0].contiguous()
        by_y = torch.empty_like(up)
        ctx.library.drop(*_addresses(None, up, by_y), up.numel(), *ctx.mask)
        return None, upstream[0] if ctx.adds else None, by_y, None


def gate(c: Library, gates: Tensor, rises: Tensor) -> Tensor:
    """Returns silu(gates) * rises."""
    return _apply(_Gate, c, gates, rises)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, gates: Tensor, rises: Tensor) -> Tensor:
        gates, rises = gates.contiguous(), rises.contiguous()
        out = torch.empty_like(gates)
        c.gate(*_addresses(gates, rises, out), gates.numel())
        ctx.save_for_backward(gates, rises)
        ctx.library = c
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        gates, rises = ctx.saved_tensors
        by_gates, by_rises = torch.empty_like(gates), torch.empty_like(rises)
        up = upstream[0].contiguous()
        ctx.library.gate_back(*_addresses(gates, rises, up, by_gates, by_rises), gates.numel())
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
    """[B, T, H * K] queries, [B, S, H * K] keys and values -> [B, T, H * K], with heads concatenated.

    `bias` [B, S] is added to the scores; `angles` (cosines and sines) rotate queries and keys beforehand.
    """
    return _apply(_Attend, c, query, key, value, heads, bias, causal, angles)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Library, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
        heads, bias, causal, angles = others
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, queries, width = query.shape
        keys = key.shape[1]
        weights = query.new_empty(batch, heads, queries, -(-keys // 16) * 16)  # rows are padded to multiples of 16
        out = torch.empty_like(query)
        sizes = (batch, heads, queries, keys, width // heads)
        bias = None if bias is None else bias.contiguous()
        c.attend(*_addresses(query, key, value, bias, *(angles or (None, None)), weights, out), *sizes, causal)
        ctx.save_for_backward(query, key, value, weights)
        ctx.library, ctx.sizes, ctx.angles = c, sizes, angles
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        query, key, value, weights = ctx.saved_tensors
        results = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        angles, up = ctx.angles or (None, None), upstream[0].contiguous()
        ctx.library.attend_back(*_addresses(query, key, value, *angles, weights, up, *results), *ctx.sizes)
        return None, *results, None, None, None, None
