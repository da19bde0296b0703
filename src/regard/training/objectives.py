"""What training minimises: label-smoothed cross-entropy of the next token, over real tokens only; and risk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.decoding.consensus import SHARPNESS
from regard.model import fused
from regard.model.linear import rounded_rows, rounds_products
from regard.model.recurrent import SequenceToSequence
from regard.training.batches import IGNORE, PairBatch
from regard.training.candidates import Made, RiskBatch
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
        layer = _OutputLayer(states, weight, bias, min(CHUNK, count))
        total = surprise = torch.zeros((), dtype=torch.float64)
        for chunk in _chunks(count, agreement):
            logits = layer.logits(chunk)
            surprises, smooths, aparts = (
                each.sum() for each in _become_gradients(logits, labels[chunk, None], smoothing, agreement)
            )
            surprise = surprise + surprises
            total = total + (1 - smoothing) * surprises - smoothing / vocabulary * smooths + agreement / 2 * aparts
            layer.learn(chunk, logits)
        if smoothing:
            uniform = smoothing / vocabulary
            layer.by_states -= uniform * weight.sum(0)
            layer.by_weight -= uniform * states.sum(0)
            if layer.by_bias is not None:
                layer.by_bias -= uniform * count
        scale = 0.5 if agreement else 1.0
        ctx.gradients = layer.by_states, layer.by_weight, layer.by_bias
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


class _OutputLayer:
    """The output layer over states [N, D], a chunk of at most `room` rows at a time, and the gradients by all in it."""

    def __init__(self, states: Tensor, weight: Tensor, bias: Tensor | None, room: int) -> None:
        self.states, self.weight, self.bias = states, weight, bias
        self.by_states, self.by_weight = torch.empty_like(states), torch.zeros_like(weight)
        self.by_bias = None if bias is None else torch.zeros_like(bias)
        self.buffer = states.new_empty(room, len(weight))
        self.table = weight.to(torch.bfloat16) if rounds_products() else None

    def logits(self, chunk: Tensor | slice) -> Tensor:
        """[N, V], in memory that the next chunk uses again."""
        rows = self.states[chunk]
        logits = self.buffer[: len(rows)]
        torch.mm(rows, self.weight.T, out=logits)
        if self.bias is not None:
            logits += self.bias
        return logits

    def learn(self, chunk: Tensor | slice, gradient: Tensor) -> None:
        """Takes in the gradient by the logits of a chunk."""
        rows = self.states[chunk]
        if self.table is not None:  # the logits themselves are not rounded: they would lose too much
            rounded = rounded_rows(gradient)
            self.by_states[chunk] = (rounded @ self.table)[: len(rows)].float()
            self.by_weight += rounded.T @ rounded_rows(rows)
        else:
            self.by_states[chunk] = gradient @ self.weight
            self.by_weight.addmm_(gradient.T, rows)
        if self.by_bias is not None:
            self.by_bias += gradient.sum(0)


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

    Returns, row by row [N], the surprise, the sum of all log-probabilities, and how far two readings are apart. Where
    there are two, the first half of the rows has what belongs to both.
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
    surprise, smooth, apart = sums
    return surprise, smooth, apart


def _become_gradients_readably(
    logits: Tensor, labels: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by PyTorch, for labels [N, 1]."""
    torch.log_softmax(logits, -1, out=logits)
    surprise = -logits.gather(1, labels).squeeze(1).double()
    smooth, apart = logits.sum(1, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
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
    return (there + back).squeeze(1).double(), torch.cat([by_first, by_second])


# Minimum risk


def risk_loss(model: SequenceToSequence, batch: RiskBatch, smoothing: float, weight: float) -> Loss:
    """How badly `model` predicts each target, and `weight` times how bad it expects its own translations to be.

    Of the translations that it has found for a source, each is as probable as the mean over its tokens, sharpened,
    makes it: what a search ranks them by. Their expected loss of BLEU counts as often as the target has tokens
    (minimum risk training; Shen et al., 2016; beside the usual loss: Edunov et al., 2018).
    """
    memory, pairs, made = model.encode(batch.pairs.source, batch.pairs.keep), batch.pairs, batch.made
    usual = token_loss(model.decode(pairs.target, memory, pairs.keep), model.logits, pairs.labels, smoothing)
    if not len(made.costs):
        return usual
    keep = None if pairs.keep is None else pairs.keep[made.owners]
    states = model.decode(made.target, memory[made.owners], keep).flatten(0, 1)
    labels = made.labels.flatten()
    real = (labels != IGNORE).nonzero().squeeze(1)
    plain = states.device.type != "cpu" or states.dtype != torch.float32
    find = expected_cost if plain else fused_expected_cost
    risk = find(states.index_select(0, real), model.logits, labels.index_select(0, real), made)
    return Loss(usual.total + weight * risk, usual.surprise, usual.tokens)


def expected_cost(states: Tensor, output: nn.Linear, labels: Tensor, made: Made) -> Tensor:
    """States [N, D] and labels [N] of all translations, end to end -> the sum of the expected costs: readably."""
    surprises = F.cross_entropy(output(states).float(), labels, reduction="none")
    means = torch.segment_reduce(surprises, "mean", lengths=made.lengths)
    costs, weights = made.costs.split(made.counts), made.weights.tolist()
    chances = ((-SHARPNESS * each).softmax(0) for each in means.split(made.counts))
    return torch.stack([w * (p * c).sum() for p, c, w in zip(chances, costs, weights, strict=True)]).sum()


def fused_expected_cost(states: Tensor, output: nn.Linear, labels: Tensor, made: Made) -> Tensor:
    """The same without ever holding all logits: the translations of a few sources at a time."""
    total: Tensor = _FusedExpectedCost.apply(states, output.weight, output.bias, labels, made)
    return total


class _FusedExpectedCost(torch.autograd.Function):
    """Computes the gradients together with the loss, as `_FusedCrossEntropy` does.

    With P the chances of the translations of a source, c their costs and n their lengths, the gradient by the
    log-probability of each token of translation i is the sharpness times P_i (c_i - sum of P c) / n_i.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, made: Made) -> Any:
        chunks = list(_whole_sources(made))
        layer = _OutputLayer(states, weight, bias, max(rows.stop - rows.start for rows, *_ in chunks))
        total = torch.zeros((), dtype=torch.float64)
        for rows, translations, sources in chunks:
            gradient = layer.logits(rows)
            surprises = _become_gradients(gradient, labels[rows, None], 0.0, 0.0)[0].float()
            lengths, costs = made.lengths[translations], made.costs[translations]
            means = torch.segment_reduce(surprises, "mean", lengths=lengths)
            counts = made.counts[sources]
            times = made.weights[sources].repeat_interleave(torch.tensor(counts))
            chances = torch.cat([(-SHARPNESS * each).softmax(0) for each in means.split(counts)])
            expected = [part.sum().expand(len(part)) for part in (chances * costs).split(counts)]
            total += (times * chances * costs).sum(dtype=torch.float64)
            by_means = -SHARPNESS * times * chances * (costs - torch.cat(expected))
            gradient.mul_((by_means / lengths).repeat_interleave(lengths)[:, None])
            layer.learn(rows, gradient)
        ctx.gradients = layer.by_states, layer.by_weight, layer.by_bias
        return total.to(states.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        states, weight, bias = ctx.gradients
        del ctx.gradients
        scale = upstream[0]
        return states.mul_(scale), weight.mul_(scale), None if bias is None else bias.mul_(scale), None, None


def _whole_sources(made: Made) -> Iterator[tuple[slice, slice, slice]]:
    """Chunks of tokens, of the translations that they are of, and of the sources of these; no source is cut."""
    sizes = [int(part.sum()) for part in made.lengths.split(made.counts)]
    first_row = first_translation = first_source = row = translation = 0
    for source, (count, size) in enumerate(zip(made.counts, sizes, strict=True)):
        if row > first_row and row + size - first_row > CHUNK:
            yield slice(first_row, row), slice(first_translation, translation), slice(first_source, source)
            first_row, first_translation, first_source = row, translation, source
        row, translation = row + size, translation + count
    yield slice(first_row, row), slice(first_translation, translation), slice(first_source, len(made.counts))


CHUNK = 512
"""Rows of logits held at a time; the translations of one source may have more tokens."""
