"""Search for the most probable text, or draw one: over any next-token scorer, without knowing the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.decoding.hypotheses import Constraints, Enough, Hypothesis, Penalty


class Step(Protocol):
    """Gives the log-probabilities of what comes next, for a batch of hypotheses.

    `start` returns those of the first token, [B, V]. `advance(tokens, rows, sentences)` appends tokens [N]
    to the hypotheses `rows` [N] of the last call and returns the next log-probabilities [N, V]; `sentences`
    are the sentences still alive, as rows of the last call's sentences, or none if all are.
    """

    def start(self) -> Tensor: ...

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor: ...


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
    """Returns the `best` highest-scored outputs of each sentence, best first; output i has at most `limits[i]` tokens.

    At each step a sentence looks at its 2 * width best continuations: those among the first `width` that end are
    found, and the first `width` that do not end stay alive. A sentence is done when `patience` times `width` outputs
    are found (Kasai et al., 2022), or when none that is alive can still be among the best. With `constraints`, one for
    each sentence, only outputs that meet them are found, perhaps none (`constrained.py`). `watch` sees every step.
    """
    rules = Rules(end, width, penalty, patience, best)
    beams, expand = start_beams(limits, rules, constraints)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    scores = step.start()[:, None, :]  # [B, W, V]: at first one hypothesis a sentence
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
    """What is the same for all sentences of a search."""

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
"""Receives, at each step, the number of a sentence, its candidates, best first, and what became of each.

The parent of a candidate is its place among those that were alive one step before.
"""


@dataclass(frozen=True)
class Partial:
    """A hypothesis that is alive: its tokens, the log-probability each gained, and its place one step before."""

    tokens: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    parent: int = 0

    @property
    def total(self) -> float:
        return sum(self.gains)


class Beam:
    """The hypotheses of one sentence: those that are alive, and the outputs that are found."""

    def __init__(self, index: int, limit: int, rules: Rules) -> None:
        self.index, self.limit, self.rules = index, limit, rules
        self.alive: Sequence[Partial] = [Partial()]
        self.found: list[Hypothesis] = []
        self.done = False

    def extend(self, candidates: Sequence[Candidate]) -> list[Fate]:
        """Takes one step: `candidates` are the best continuations, best first; returns what became of each."""
        before, alive = self.alive, list[Partial]()
        fates: list[Fate] = []
        for rank, (total, parent, token, gain) in enumerate(candidates):
            old = before[parent]
            gains = (*old.gains, gain)
            if token != self.rules.end and len(alive) < self.rules.width:
                alive.append(Partial((*old.tokens, token), gains, parent))
                fates.append("alive")
            elif token == self.rules.end and rank < self.rules.width and total > -math.inf:
                self.found.append(self.output(old.tokens, gains, finished=True))
                fates.append("found")
            else:
                fates.append("dropped")
        self.alive = alive
        self.done = len(alive[0].gains) >= self.limit or self.settled()
        return fates

    def settled(self) -> bool:
        """Tells whether enough is found, or nothing alive can still beat the worst of the `width` best found."""
        rules = self.rules
        if rules.patience and len(self.found) >= max(rules.best, round(rules.patience * rules.width)):
            return True
        attainable = max(h.total for h in self.alive) / rules.penalty(self.limit)
        scores = sorted((h.score for h in self.found), reverse=True)[: rules.width]
        return len(scores) == rules.width and scores[-1] >= attainable

    def best(self) -> list[Hypothesis]:
        """Returns what was found, and what the length limit cut off, best first."""
        cut = [
            self.output(h.tokens, h.gains, finished=False)
            for h in self.alive
            if len(h.gains) >= self.limit and h.total > -math.inf
        ]
        return sorted([*self.found, *cut], key=lambda h: -h.score)[: self.rules.best]

    def output(self, tokens: tuple[int, ...], gains: tuple[float, ...], *, finished: bool) -> Hypothesis:
        return Hypothesis(tokens, gains, sum(gains) / self.rules.penalty(len(gains)), finished)


Expand = Callable[[Sequence[Any], Tensor], Iterable[Sequence[Candidate]]]
"""Beams and log-probabilities [B, W, V] -> for each beam its best continuations, best first."""


def start_beams(
    limits: Sequence[int], rules: Rules, constraints: Sequence[Constraints]
) -> tuple[Sequence[Beam], Expand]:
    """Returns a beam for each sentence, and what finds their continuations."""
    if not constraints:
        return [Beam(i, limit, rules) for i, limit in enumerate(limits)], best_continuations
    from regard.decoding.beam_constraints import ConstrainedBeam, constrained_continuations

    wanted = zip(limits, constraints, strict=True)
    return [ConstrainedBeam(i, limit, rules, each) for i, (limit, each) in enumerate(wanted)], constrained_continuations


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
"""Picks a token for each hypothesis: log-probabilities [N, V] -> tokens [N]."""


def generate(step: Step, rows: int, choose: Choose) -> Iterator[tuple[list[int], list[float]]]:
    """Token by token: at each step the chosen token of every hypothesis and its log-probability.

    Each sentence has `rows` hypotheses. It goes on until the caller stops asking.
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
    enough: Enough | None = None,
) -> list[list[Hypothesis]]:
    """`rows` outputs of each sentence, each token chosen as soon as it is scored: greedy, or drawn.

    `enough`, asked with the number of the sentence and the tokens so far, can end an output early.
    """
    growing = [Partial() for _ in limits for _ in range(rows)]
    done: list[Hypothesis | None] = [None] * len(growing)
    for tokens, gains in generate(step, rows, choose):
        for i, (token, gain) in enumerate(zip(tokens, gains, strict=True)):
            if done[i] is None:
                old = growing[i]
                total = (*old.gains, gain)
                ended = token == end
                growing[i] = Partial(old.tokens if ended else (*old.tokens, token), total)
                if ended or len(total) >= limits[i // rows] or (enough and enough(i // rows, growing[i].tokens)):
                    done[i] = Hypothesis(growing[i].tokens, total, sum(total) / penalty(len(total)), finished=ended)
        if all(done):
            break
    return [sorted((h for h in done[i : i + rows] if h), key=lambda h: -h.score) for i in range(0, len(done), rows)]


def highest(scores: Tensor) -> Tensor:
    """[N, V] -> [N]: the most probable token."""
    return scores.argmax(-1)


def draw(
    scores: Tensor,
    luck: Tensor,
    *,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Tensor:
    """Log-probabilities [N, V] and a number in [0, 1) for each row -> the drawn tokens [N].

    The tokens are laid side by side from the most probable on, each as wide as its probability; `luck` is a
    point on that line. Only the `top_k` first, only those that start before `top_p` (Holtzman et al., 2020)
    and only those at least `min_p` times as probable as the first (Nguyen et al., 2024) have a place on it.
    """
    heights = (scores.double() - scores.amax(-1, keepdim=True)) / temperature  # the first is 0, however cold it is
    probabilities, tokens = heights.softmax(-1).sort(stable=True, dim=-1, descending=True)
    starts = probabilities.cumsum(-1) - probabilities
    out = (starts >= top_p) | (probabilities < min_p * probabilities[:, :1]) | (probabilities == 0)
    if top_k:
        out[:, top_k:] = True
    out[:, 0] = False
    ends = probabilities.masked_fill(out, 0.0).cumsum(-1)
    place = torch.searchsorted(ends, (luck.to(ends) * ends[:, -1])[:, None], right=True)
    last = (~out).sum(-1, keepdim=True) - 1
    return tokens.gather(1, torch.minimum(place, last)).squeeze(1)
