"""Linear layers in float32, or with bfloat16 products on a CPU.

PyTorch's autocast also converts everything between two products to bfloat16, which makes attention slow on a CPU
(docs/log.md). Here only the operands of products are rounded: results stay float32, and norms, softmax and residual
sums keep full precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.model.kernels.compute_mode import mode


class Linear(nn.Linear):
    """Computes x Wᵀ + b, with a bfloat16 product if the mode asks for it."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., A] -> [..., B]"""
        if mode().bfloat16 and x.device.type == "cpu" and x.dtype == torch.float32:
            product: Tensor = _Bfloat16Linear.apply(x, self.weight, self.bias)
            return product
        return super().forward(x)


class _Bfloat16Linear(torch.autograd.Function):
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


ROWS = 64
"""Operands of bfloat16 products are padded to a multiple of this number of rows."""


def rounded_rows(x: Tensor) -> Tensor:
    """[N, A] -> [M, A] in bfloat16, padded with rows of zeros to a multiple of `ROWS`.

    oneDNN generates machine code for every new shape, and batches come in all lengths.
    """
    length = -(-len(x) // ROWS) * ROWS
    rounded = x.new_empty(length, x.shape[1], dtype=torch.bfloat16)
    rounded[: len(x)].copy_(x)
    rounded[len(x) :].zero_()
    return rounded
