"""What training minimises: label-smoothed cross-entropy of the next token, over real tokens only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model import fused
from regard.model.linear import rounded_rows, rounds_products
from regard.model.recurrent import SequenceToSequence
from regard.training.batches import IGNORE, PairBatch
from regard.training.task import Loss


def translation_loss(model: SequenceToSequence, batch: PairBatch, smoothing: float, agreement: float = 0.0) -> Loss:
    """How badly `model` predicts each target token from the source and the target tokens before it.

    With `agreement` every pair is read twice, under two dropout masks, and the two predictions are to be alike (R-Drop;
    Liang et al., 2021).
    """
    if not agreement:
        states = model.states(batch.source, batch.target, batch.keep)
        return token_loss(states, model.logits, batch.labels, smoothing)
    source, target, labels = (tokens.repeat(2, 1) for tokens in (batch.source, batch.target, batch.labels))
    states = model.states(source, target, None if batch.keep is None else batch.keep.repeat(2, 1))
    return token_loss(states, model.logits, labels, smoothing, agreement)


def token_loss(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float, agreement: float = 0.0) -> Loss:
    """How badly the output layer tells the labels [B, T] from the states [B, T, D], where there is one.

    With `agreement` the second half of the rows reads the same as the first, and all sums are means of the two.
    """
    states, labels = states.flatten(0, -2), labels.flatten()
    real = (labels != IGNORE).nonzero().squeeze(1)
    if len(real) < len(labels):
        states, labels = states.index_select(0, real), labels.index_select(0, real)
    fused = states.device.type == "cpu" and states.dtype == torch.float32
    total, surprise = (fused_cross_entropy if fused else cross_entropy)(states, output, labels, smoothing, agreement)
    return Loss(total, float(surprise), len(labels) // (2 if agreement else 1))


def cross_entropy(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float, agreement: float = 0.0
) -> tuple[Tensor, Tensor]:
    """States [N, D] and labels [N] -> sums of the loss and of the surprise: the readable path."""
    logits = output(states).float()
    total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    surprise = F.cross_entropy(logits.detach(), labels, reduction="sum")
    if not agreement:
        return total, surprise
    first, second = logits.log_softmax(-1).chunk(2)
    apart = F.kl_div(first, second, reduction="sum", log_target=True)
    apart = apart + F.kl_div(second, first, reduction="sum", log_target=True)
    return (total + agreement / 2 * apart) / 2, surprise / 2


def fused_cross_entropy(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float, agreement: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The same without ever holding all logits: the output layer and its gradients, a few rows at a time."""
    total, surprise = _FusedCrossEntropy.apply(states, output.weight, output.bias, labels, smoothing, agreement)
    return total, surprise


class _FusedCrossEntropy(torch.autograd.Function):
    """Computes the gradients together with the loss, in buffers that are used again for every chunk.

    On a CPU the logits are the largest tensor of a small model by far; writing them to fresh memory costs
    more than the products (docs/log.md). With p the probabilities, u = smoothing / V and one-hot labels y,
    the gradient of the logits is p - (1 - smoothing) y - u; the constant u is taken off the results instead.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        agreement: float,
    ) -> Any:
        count, vocabulary = len(states), len(weight)
        states_gradient, weight_gradient = torch.empty_like(states), torch.zeros_like(weight)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        total = surprise = torch.zeros((), dtype=torch.float64)
        buffer = states.new_empty(min(CHUNK, count), vocabulary)
        rounds = rounds_products()
        table = weight.to(torch.bfloat16) if rounds else weight
        for chunk in _chunks(count, agreement):
            rows, right = states[chunk], labels[chunk, None]
            logits = buffer[: len(rows)]
            torch.mm(rows, weight.T, out=logits)
            if bias is not None:
                logits += bias
            surprises, smooths, aparts = _become_gradients(logits, right, smoothing, agreement)
            surprise = surprise + surprises
            total = total + (1 - smoothing) * surprises - smoothing / vocabulary * smooths + agreement / 2 * aparts
            gradient = logits
            if rounds:  # the logits themselves are not: they would lose too much
                rounded = rounded_rows(gradient)
                states_gradient[chunk] = (rounded @ table)[: len(rows)].float()
                weight_gradient += rounded.T @ rounded_rows(rows)
            else:
                states_gradient[chunk] = gradient @ weight
                weight_gradient.addmm_(gradient.T, rows)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0)
        if smoothing:
            uniform = smoothing / vocabulary
            states_gradient -= uniform * weight.sum(0)
            weight_gradient -= uniform * states.sum(0)
            if bias_gradient is not None:
                bias_gradient -= uniform * count
        scale = 0.5 if agreement else 1.0
        ctx.gradients = states_gradient, weight_gradient, bias_gradient
        ctx.scale = scale
        total, surprise = (scale * total).to(states.dtype), (scale * surprise).to(states.dtype)
        ctx.mark_non_differentiable(surprise)
        return total, surprise

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        states, weight, bias = ctx.gradients
        del ctx.gradients
        scale = upstream[0] * ctx.scale
        return states.mul_(scale), weight.mul_(scale), None if bias is None else bias.mul_(scale), None, None, None


def _chunks(count: int, agreement: float) -> Iterator[Tensor | slice]:
    """Which rows are worked on together; rows that are to agree are in one chunk, first halves first."""
    if not agreement:
        yield from (slice(start, start + CHUNK) for start in range(0, count, CHUNK))
        return
    for start in range(0, count // 2, CHUNK // 2):
        first = torch.arange(start, min(start + CHUNK // 2, count // 2))
        yield torch.cat([first, first + count // 2])


def _become_gradients(
    logits: Tensor, labels: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [N, V] become the gradient by them, but for the constant of smoothing, where they lie.

    Returns the sums of the surprise, of all log-probabilities, and of how far the two readings are apart.
    """
    library = fused.usable(logits)
    if library is None or not logits.is_contiguous():
        return _become_gradients_readably(logits, labels, smoothing, agreement)
    labels, rows = labels.flatten(), len(logits)
    sums = torch.zeros(3, rows, dtype=torch.float64)
    places = [each.data_ptr() for each in sums]
    if agreement:
        library.tell_both(logits.data_ptr(), labels.data_ptr(), *logits.shape, smoothing, agreement, *places)
    else:
        library.tell(logits.data_ptr(), labels.data_ptr(), *logits.shape, smoothing, *places[:2])
    surprise, smooth, apart = sums.sum(1)
    return surprise, smooth, apart


def _become_gradients_readably(
    logits: Tensor, labels: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by PyTorch, for labels [N, 1]."""
    torch.log_softmax(logits, -1, out=logits)
    surprise = -logits.gather(1, labels).sum(dtype=torch.float64)
    smooth, apart = logits.sum(1).sum(dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    if agreement:
        apart, gradient = _disagreement(logits)
        logits.exp_().add_(gradient, alpha=agreement / 2)
    else:
        logits.exp_()
    logits.scatter_add_(1, labels, logits.new_full(labels.shape, smoothing - 1))
    return surprise, smooth, apart


def _disagreement(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities [2 N, V] of two readings -> how far they are apart, and its gradient by the logits.

    The sum of KL(p || q) and KL(q || p); by the logits of p it has the gradient p (log p - log q - KL(p || q)) + p - q.
    """
    first, second = logs.chunk(2)
    one, two = first.exp(), second.exp()
    difference = first - second
    there = (one * difference).sum(1, keepdim=True)
    back = -(two * difference).sum(1, keepdim=True)
    gap = one - two
    by_first = (difference - there).mul_(one).add_(gap)
    by_second = (difference + back).mul_(two).add_(gap).neg_()
    return (there + back).sum(dtype=torch.float64), torch.cat([by_first, by_second])


CHUNK = 512
"""Rows of logits held at a time."""
