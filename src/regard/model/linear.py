"""Linear maps, whose products a CPU may take in bfloat16.

PyTorch's autocast turns everything between two products into bfloat16 as well, for which a CPU's attention is slow
(docs/log.md). Here the products alone are: what goes in is rounded, what comes out is float32 again, and norms, softmax
and residual sums lose nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_here = threading.local()  # whether this thread takes its products in bfloat16


def bfloat16_products() -> AbstractContextManager[None]:
    """Within it, this thread takes the products of linear maps in bfloat16, if they are on a CPU."""
    return products_as(True)


def rounds_products() -> bool:
    """Whether this thread is to take its products in bfloat16."""
    return getattr(_here, "rounds", False)


@contextmanager
def products_as(rounds: bool) -> Iterator[None]:
    """Within it, this thread takes its products as another time, or another thread, did."""
    before = rounds_products()
    _here.rounds = rounds
    try:
        yield
    finally:
        _here.rounds = before


class Linear(nn.Linear):
    """x Wᵀ + b."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., A] -> [..., B]"""
        if rounds_products() and x.device.type == "cpu" and x.dtype == torch.float32:
            result: Tensor = _RoundedProduct.apply(x, self.weight, self.bias)
            return result
        return super().forward(x)


class _RoundedProduct(torch.autograd.Function):
    """The same, and its gradients, of numbers rounded to bfloat16; what is summed stays float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, rounded = rounded_rows(x.reshape(-1, x.shape[-1])), weight.to(torch.bfloat16)
        ctx.save_for_backward(rows, rounded)
        ctx.shape = x.shape
        product = (rows @ rounded.mT)[: x.shape[:-1].numel()].float()
        if bias is not None:
            product += bias
        return product.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        rows, rounded = ctx.saved_tensors
        gradient = upstream[0].reshape(-1, upstream[0].shape[-1])
        by_x = by_weight = by_bias = None
        half = rounded_rows(gradient)
        if ctx.needs_input_grad[0]:
            by_x = (half @ rounded)[: len(gradient)].float().view(ctx.shape)
        if ctx.needs_input_grad[1]:
            by_weight = (half.mT @ rows).float()
        if ctx.needs_input_grad[2]:
            by_bias = gradient.sum(0)
        return by_x, by_weight, by_bias


def rounded_rows(x: Tensor) -> Tensor:
    """[N, A] -> [M, A] in bfloat16, with rows of zeros up to a multiple of `STEP`.

    oneDNN makes machine code for each new shape of a product: batches of every length would have it do so all the time.
    """
    length = -(-len(x) // STEP) * STEP
    rounded = x.new_empty(length, x.shape[1], dtype=torch.bfloat16)
    rounded[: len(x)].copy_(x)
    rounded[len(x) :].zero_()
    return rounded


STEP = 64
"""Numbers of rows of a product are multiples of this."""
