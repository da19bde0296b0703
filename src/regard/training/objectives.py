"""What training minimises: label-smoothed cross-entropy of the next token, over real tokens only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.transformer import EncoderDecoder
from regard.training.batches import IGNORE, PairBatch
from regard.training.task import Loss


def translation_loss(model: EncoderDecoder, batch: PairBatch, smoothing: float) -> Loss:
    """How badly `model` predicts each target token from the source and the target tokens before it."""
    states = model.states(batch.source, batch.target, batch.keep)
    return token_loss(states, model.logits, batch.labels, smoothing)


def token_loss(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> Loss:
    """How badly the output layer tells the labels [B, T] from the states [B, T, D], where there is one."""
    states, labels = states.flatten(0, -2), labels.flatten()
    real = (labels != IGNORE).nonzero().squeeze(1)
    if len(real) < len(labels):
        states, labels = states.index_select(0, real), labels.index_select(0, real)
    fused = states.device.type == "cpu" and states.dtype == torch.float32
    total, surprise = (fused_cross_entropy if fused else cross_entropy)(states, output, labels, smoothing)
    return Loss(total, float(surprise), len(labels))


def cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """States [N, D] and labels [N] -> sums of the smoothed loss and of the surprise: the readable path."""
    logits = output(states).float()
    total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    return total, F.cross_entropy(logits.detach(), labels, reduction="sum")


def fused_cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same without ever holding all logits: the output layer and its gradients, a few rows at a time."""
    total, surprise = _FusedCrossEntropy.apply(states, output.weight, output.bias, labels, smoothing)
    return total, surprise


class _FusedCrossEntropy(torch.autograd.Function):
    """Computes the gradients together with the loss, in one buffer that is used again for every chunk.

    On a CPU the logits are the largest tensor of a small model by far; writing them to fresh memory costs
    more than the products (docs/log.md). With p the probabilities, u = smoothing / V and one-hot labels y,
    the gradient of the logits is p - (1 - smoothing) y - u; the constant u is taken off the results instead.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Any:
        count, vocabulary = len(states), len(weight)
        uniform = smoothing / vocabulary
        states_gradient, weight_gradient = torch.empty_like(states), torch.zeros_like(weight)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        total = surprise = torch.zeros((), dtype=torch.float64)
        buffer = states.new_empty(min(CHUNK, count), vocabulary)
        for start in range(0, count, CHUNK):
            rows, right = states[start : start + CHUNK], labels[start : start + CHUNK, None]
            logits = buffer[: len(rows)]
            torch.mm(rows, weight.T, out=logits)
            if bias is not None:
                logits += bias
            torch.log_softmax(logits, -1, out=logits)
            chunk_surprise = -logits.gather(1, right).sum(dtype=torch.float64)
            surprise = surprise + chunk_surprise
            total = total + (1 - smoothing) * chunk_surprise - uniform * logits.sum(1).sum(dtype=torch.float64)
            gradient = logits.exp_().scatter_add_(1, right, logits.new_full(right.shape, smoothing - 1))
            torch.mm(gradient, weight, out=states_gradient[start : start + CHUNK])
            weight_gradient.addmm_(gradient.T, rows)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0)
        if smoothing:
            states_gradient -= uniform * weight.sum(0)
            weight_gradient -= uniform * states.sum(0)
            if bias_gradient is not None:
                bias_gradient -= uniform * count
        ctx.gradients = states_gradient, weight_gradient, bias_gradient
        total, surprise = total.to(states.dtype), surprise.to(states.dtype)
        ctx.mark_non_differentiable(surprise)
        return total, surprise

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        states, weight, bias = ctx.gradients
        del ctx.gradients
        scale = upstream[0]
        return states.mul_(scale), weight.mul_(scale), None if bias is None else bias.mul_(scale), None, None


CHUNK = 512
"""Rows of logits held at a time."""
