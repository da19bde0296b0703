"""The training loss: label-smoothed cross-entropy, without padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.kernels.compute_mode import fused_kernels, mode
from regard.model.linear import rounded_rows
from regard.model.recurrent import SequenceToSequence
from regard.training.batches import IGNORE, PairBatch

CHUNK = 512
"""Number of rows of logits to hold in memory at a time."""


@dataclass(frozen=True)
class Loss:
    """Sums over the predictions of a batch, which the caller adds up over batches and then averages."""

    total: Tensor  # differentiable, with label smoothing
    surprise: float  # negative log-probability of the labels, in nats
    tokens: int


def translation_loss(model: SequenceToSequence, batch: PairBatch, smoothing: float) -> Loss:
    """Returns the loss of each target token, given the source and the target tokens before it."""
    states = model.states(batch.inputs, batch.target, batch.keep)
    return token_loss(states, model.logits, batch.labels, smoothing)


def token_loss(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> Loss:
    """Returns the loss of labels [B, T] given states [B, T, D]; positions labelled `IGNORE` do not count."""
    states, labels = states.flatten(0, -2), labels.flatten()
    real = (labels != IGNORE).nonzero().squeeze(1)
    if len(real) < len(labels):
        states, labels = states.index_select(0, real), labels.index_select(0, real)
    chunked = states.device.type == "cpu" and states.dtype == torch.float32
    total, surprise = (chunked_cross_entropy if chunked else cross_entropy)(states, output, labels, smoothing)
    return Loss(total, float(surprise), len(labels))


def cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """[N, D] states, [N] labels -> sums of the loss and of the surprise, computed in the readable way."""
    logits = output(states).float()
    total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    return total, F.cross_entropy(logits.detach(), labels, reduction="sum")


def chunked_cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Computes the same as `cross_entropy`, together with the output layer's gradients, a few rows at a time."""
    total, surprise = _ChunkedCrossEntropy.apply(states, output.weight, output.bias, labels, smoothing)
    return total, surprise


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The loss, computed together with its gradients in one buffer that is reused for every chunk.

    On a CPU, the logits are by far the largest tensor of a small model, and writing them to new memory costs more than
    the matrix products (docs/log.md). With probabilities p, u = smoothing / V and one-hot labels y, the gradient of the
    logits is p - (1 - smoothing) y - u; the constant u is subtracted from the results instead.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        count, vocabulary = len(states), len(weight)
        state_gradients, weight_gradients = torch.empty_like(states), torch.zeros_like(weight)
        bias_gradients = None if bias is None else torch.zeros_like(bias)
        buffer = states.new_empty(min(CHUNK, count), vocabulary)
        rounded_weight = weight.to(torch.bfloat16) if mode().bfloat16 else None
        total = surprise = torch.zeros((), dtype=torch.float64)
        for start in range(0, count, CHUNK):
            rows = states[start : start + CHUNK]
            logits = torch.mm(rows, weight.T, out=buffer[: len(rows)])
            if bias is not None:
                logits += bias
            surprises, log_sums = _logits_to_gradients(logits, labels[start : start + CHUNK], smoothing)
            surprise = surprise + surprises.sum()
            total = total + (1 - smoothing) * surprises.sum() - smoothing / vocabulary * log_sums.sum()
            gradient = logits
            if rounded_weight is not None:  # round only these products: rounded logits would lose too much precision
                rounded = rounded_rows(gradient)
                state_gradients[start : start + CHUNK] = (rounded @ rounded_weight)[: len(rows)].float()
                weight_gradients += rounded.T @ rounded_rows(rows)
            else:
                state_gradients[start : start + CHUNK] = gradient @ weight
                weight_gradients.addmm_(gradient.T, rows)
            if bias_gradients is not None:
                bias_gradients += gradient.sum(0)
        if smoothing:
            uniform = smoothing / vocabulary
            state_gradients -= uniform * weight.sum(0)
            weight_gradients -= uniform * states.sum(0)
            if bias_gradients is not None:
                bias_gradients -= uniform * count
        ctx.gradients = state_gradients, weight_gradients, bias_gradients
        total, surprise = total.to(states.dtype), surprise.to(states.dtype)
        ctx.mark_non_differentiable(surprise)
        return total, surprise

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        states, weight, bias = ctx.gradients
        del ctx.gradients
        scale = upstream[0]
        return states.mul_(scale), weight.mul_(scale), None if bias is None else bias.mul_(scale), None, None


def _logits_to_gradients(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Overwrites logits [N, V] with their gradients, except for the constant of label smoothing.

    Returns the surprise and the sum of all log-probabilities of each row [N].
    """
    kernels = fused_kernels(logits)
    if kernels is None or not logits.is_contiguous():
        return _logits_to_gradients_in_pytorch(logits, labels, smoothing)
    surprises, log_sums = torch.zeros(2, len(logits), dtype=torch.float64)
    places = (surprises.data_ptr(), log_sums.data_ptr())
    kernels.cross_entropy(logits.data_ptr(), labels.contiguous().data_ptr(), *logits.shape, smoothing, *places)
    return surprises, log_sums


def _logits_to_gradients_in_pytorch(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    torch.log_softmax(logits, -1, out=logits)
    surprises = -logits.gather(1, labels[:, None]).squeeze(1).double()
    log_sums = logits.sum(1, dtype=torch.float64)
    logits.exp_()
    logits.scatter_add_(1, labels[:, None], logits.new_full((len(labels), 1), smoothing - 1))
    return surprises, log_sums
