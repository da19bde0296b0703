"""Beam search, greedy search and sampling for any model that scores next tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.decoding.search_interface import Constraints, Hypothesis, Penalty, ShouldEnd


class Step(Protocol):
    """Computes the log-probabilities of the next token for a batch of hypotheses."""

    def start(self) -> Tensor:
        """Returns the log-probabilities [B, V] of the first token of each sentence."""
        ...

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
        """Appends tokens [N] to the hypotheses `rows` [N] of the last call -> [N, V] log-probabilities.

        `sentences` are the sentences that are not done, as row numbers of the last call; None means all of them.
        """
        ...


def beam_search(
    step: Step,
    limits: Sequence[int],
    *,
    end: int,
    width: int,
    penalty: Penalty,
    patience: float = 0.0,
    best: int = 1,
    constraints: Sequence[Constraints] = (),
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Returns the `best` highest-scoring outputs of each sentence, best first; output i has at most `limits[i]` tokens.

    At each step, the candidates of a sentence are its 2 * width best continuations. Those among the first `width` that
    end become outputs, and the first `width` that do not end stay alive. A sentence is done when it has `patience` *
    `width` outputs (Kasai et al., 2022), or when no live hypothesis can become one of the best. With `constraints`, one
    for each sentence, only outputs that meet them are returned, possibly none (`beam_constraints.py`). `watch` is
    called at every step.
    """
    rules = Rules(end, width, penalty, patience, best)
    beams, expand = start_beams(limits, rules, constraints)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    scores = step.start()[:, None, :]  # [B, W, V], initially with one hypothesis per sentence
    while beams:
        for beam, candidates in zip(beams, expand(beams, scores), strict=True):
            fates = beam.extend(candidates)
            if watch is not None:
                watch(beam.index, candidates, fates)
            if beam.done:
                results[beam.index] = beam.best()
        alive = [i for i, beam in enumerate(beams) if not beam.done]
        before, rows = scores.shape[1], max((len(beams[i].alive) for i in alive), default=0)
        kept = None if len(alive) == len(beams) else torch.tensor(alive)
        hypotheses = [(i, beams[i].alive[min(row, len(beams[i].alive) - 1)]) for i in alive for row in range(rows)]
        beams = [beams[i] for i in alive]
        if beams:
            tokens = torch.tensor([h.tokens[-1] for _, h in hypotheses])
            parents = torch.tensor([i * before + h.parent for i, h in hypotheses])
            scores = step.advance(tokens, parents, kept).unflatten(0, (len(beams), rows))
    return results


class Rules(NamedTuple):
    """The options of a beam search, which all sentences share."""

    end: int
    width: int
    penalty: Penalty
    patience: float
    best: int


class Candidate(NamedTuple):
    """A possible next token of hypothesis `parent` of a sentence."""

    total: float
    parent: int
    token: int
    gain: float


Fate = Literal["alive", "found", "dropped"]
Watch = Callable[[int, Sequence[Candidate], Sequence[Fate]], None]
"""A callback that gets the number of a sentence, its candidates, best first, and the fate of each, at every step.

The parent of a candidate is its index among the hypotheses that were alive in the previous step.
"""


@dataclass(frozen=True)
class Partial:
    """A live hypothesis: its tokens, their log-probabilities, and the index of its parent in the previous step."""

    tokens: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    parent: int = 0

    @property
    def total(self) -> float:
        return sum(self.gains)


class Beam:
    """The beam of one sentence: its live hypotheses, and its outputs so far."""

    def __init__(self, index: int, limit: int, rules: Rules) -> None:
        self.index, self.limit, self.rules = index, limit, rules
        self.alive: Sequence[Partial] = [Partial()]
        self.found: list[Hypothesis] = []
        self.done = False

    def extend(self, candidates: Sequence[Candidate]) -> list[Fate]:
        """Takes one step with these candidates, best first; returns the fate of each."""
        fates: list[Fate] = ["dropped"] * len(candidates)
        self.alive = self.keep(candidates, range(len(candidates)), self.rules.width, fates)
        self.done = len(self.alive[0].gains) >= self.limit or self.is_settled()
        return fates

    def keep(
        self, candidates: Sequence[Candidate], numbers: Iterable[int], width: int, fates: list[Fate]
    ) -> list[Partial]:
        """Returns the first `width` of these candidates that do not end; adds those that end to the outputs."""
        alive: list[Partial] = []
        for rank, number in enumerate(numbers):
            total, parent, token, gain = candidates[number]
            old, drafted = self.alive[parent], self.is_drafted(parent, token)
            gains = (*old.gains, gain)
            if token != self.rules.end and (len(alive) < width or drafted):
                alive.append(Partial((*old.tokens, token), gains, parent))
                fates[number] = "alive"
            elif token == self.rules.end and (rank < width or drafted) and total > -math.inf:
                self.found.append(self.output(old.tokens, gains, finished=True))
                fates[number] = "found"
        return alive

    def is_drafted(self, parent: int, token: int) -> bool:
        """Reports whether hypothesis `parent` with this token begins a draft, which stays alive at any rank."""
        return False

    def is_settled(self) -> bool:
        """Reports whether there are enough outputs, or no live hypothesis can beat the worst of the `width` best."""
        rules = self.rules
        if rules.patience and len(self.found) >= max(rules.best, round(rules.patience * rules.width)):
            return True
        attainable = max(h.total for h in self.alive) / rules.penalty(self.limit)
        scores = sorted((h.score for h in self.found), reverse=True)[: rules.width]
        return len(scores) == rules.width and scores[-1] >= attainable

    def is_output(self, partial: Partial) -> bool:
        """Reports whether a hypothesis that reaches the length limit is an output."""
        return partial.total > -math.inf

    def ranked(self) -> list[Hypothesis]:
        """Returns all outputs, best first, including those that the length limit cut off."""
        at_limit = [h for h in self.alive if len(h.gains) >= self.limit and self.is_output(h)]
        cut = [self.output(h.tokens, h.gains, finished=False) for h in at_limit]
        return sorted([*self.found, *cut], key=lambda h: -h.score)

    def best(self) -> list[Hypothesis]:
        return self.ranked()[: self.rules.best]

    def output(self, tokens: tuple[int, ...], gains: tuple[float, ...], *, finished: bool) -> Hypothesis:
        return Hypothesis(tokens, gains, sum(gains) / self.rules.penalty(len(gains)), finished)


Expand = Callable[[Sequence[Any], Tensor], Iterable[Sequence[Candidate]]]
"""A function: beams and log-probabilities [B, W, V] -> the candidates of each beam, best first."""


def start_beams(
    limits: Sequence[int], rules: Rules, constraints: Sequence[Constraints]
) -> tuple[Sequence[Beam], Expand]:
    """Returns a beam for each sentence, and the function that computes their candidates."""
    if not constraints:
        return [Beam(i, limit, rules) for i, limit in enumerate(limits)], best_continuations
    from regard.decoding.beam_constraints import ConstrainedBeam, constrained_continuations

    pairs = zip(limits, constraints, strict=True)
    return [ConstrainedBeam(i, limit, rules, each) for i, (limit, each) in enumerate(pairs)], constrained_continuations


def best_continuations(beams: Sequence[Beam], scores: Tensor) -> list[list[Candidate]]:
    """Log-probabilities [B, W, V] -> the 2 * width best continuations of each sentence, best first."""
    totals = torch.tensor([[h.total for h in beam.alive] for beam in beams], device=scores.device)  # [B, W]
    sums = (totals[..., None] + scores).flatten(1)  # [B, W * V]
    values, places = sums.topk(min(2 * beams[0].rules.width, sums.shape[1]))
    vocabulary = scores.shape[-1]
    columns = (values, places // vocabulary, places % vocabulary, scores.flatten(1).gather(1, places))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [[Candidate(*values) for values in zip(*row, strict=True)] for row in rows]


Choose = Callable[[Tensor], Tensor]
"""A function that picks a token for each hypothesis: log-probabilities [N, V] -> tokens [N]."""


def generate(step: Step, rows: int, choose: Choose) -> Iterator[tuple[list[int], list[float]]]:
    """Yields the chosen token of every hypothesis and its log-probability, step by step, until the caller stops.

    Each sentence has `rows` hypotheses.
    """
    scores = step.start().repeat_interleave(rows, 0)  # [N, V]
    order = torch.arange(len(scores) // rows).repeat_interleave(rows)
    while True:
        tokens = choose(scores).to(scores.device)
        yield tokens.tolist(), scores.gather(1, tokens[:, None]).squeeze(1).tolist()
        scores = step.advance(tokens, order, None)
        order = torch.arange(len(scores))


def follow(
    step: Step,
    limits: Sequence[int],
    *,
    end: int,
    penalty: Penalty,
    choose: Choose,
    rows: int = 1,
    should_end: ShouldEnd | None = None,
) -> list[list[Hypothesis]]:
    """Returns `rows` outputs of each sentence, best first, in which `choose` picks each token."""
    growing = [Partial() for _ in limits for _ in range(rows)]
    done: list[Hypothesis | None] = [None] * len(growing)
    for tokens, gains in generate(step, rows, choose):
        for i, (token, gain) in enumerate(zip(tokens, gains, strict=True)):
            if done[i] is None:
                old = growing[i]
                total = (*old.gains, gain)
                ended = token == end
                growing[i] = Partial(old.tokens if ended else (*old.tokens, token), total)
                if (
                    ended
                    or len(total) >= limits[i // rows]
                    or (should_end and should_end(i // rows, growing[i].tokens))
                ):
                    done[i] = Hypothesis(growing[i].tokens, total, sum(total) / penalty(len(total)), finished=ended)
        if all(done):
            break
    return [sorted((h for h in done[i : i + rows] if h), key=lambda h: -h.score) for i in range(0, len(done), rows)]


def most_probable(scores: Tensor) -> Tensor:
    return scores.argmax(-1)


def sample_tokens(
    scores: Tensor, numbers: Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Tensor:
    """Log-probabilities [N, V] and a random number in [0, 1) for each row -> the sampled tokens [N].

    Each number selects a token by the cumulative probabilities, in descending order of probability. `top_k` keeps the
    first tokens, `top_p` those before this cumulative probability (Holtzman et al., 2020), and `min_p` those at least
    this many times as probable as the first (Nguyen et al., 2024).
    """
    heights = (scores.double() - scores.amax(-1, keepdim=True)) / temperature  # the maximum is 0 at any temperature
    probabilities, tokens = heights.softmax(-1).sort(stable=True, dim=-1, descending=True)
    starts = probabilities.cumsum(-1) - probabilities
    out = (starts >= top_p) | (probabilities < min_p * probabilities[:, :1]) | (probabilities == 0)
    if top_k:
        out[:, top_k:] = True
    out[:, 0] = False
    ends = probabilities.masked_fill(out, 0.0).cumsum(-1)
    place = torch.searchsorted(ends, (numbers.to(ends) * ends[:, -1])[:, None], right=True)
    last = (~out).sum(-1, keepdim=True) - 1
    return tokens.gather(1, torch.minimum(place, last)).squeeze(1)
