"""Search for the most probable text, or draw one: over any next-token scorer, without knowing the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.decoding.hypothesis import Enough, Hypothesis, Penalty


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
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """The `best` highest-scored outputs of each sentence, best first; sentence i ends by `limits[i]` tokens.

    At each step the 2 * width best continuations of a sentence are looked at: those among the first `width`
    that end are found, the first `width` that do not end live on. A sentence is done when `patience` times `width`
    are found (Kasai et al., 2022), or when none that lives can still be among the best. `watch` is told of all.
    """
    enough = max(best, round(patience * width)) if patience else math.inf
    sentences = [_Sentence(i, limit, enough) for i, limit in enumerate(limits)]
    results: list[list[Hypothesis]] = [[] for _ in limits]
    scores = step.start()[:, None, :]  # [B, W, V]: at first one hypothesis a sentence
    totals = torch.zeros(len(limits), 1, device=scores.device)
    while sentences:
        candidates = _best_continuations(totals, scores, 2 * width)
        for sentence, found in zip(sentences, candidates, strict=True):
            fates = sentence.extend(found, end, width, penalty)
            if watch is not None:
                watch(sentence.index, found, fates)
        going_on = [i for i, sentence in enumerate(sentences) if not sentence.done]
        for sentence in sentences:
            if sentence.done:
                results[sentence.index] = sentence.best(penalty)[:best]
        alive = scores.shape[1]
        rows = [i * alive + parent for i in going_on for parent in sentences[i].parents]
        kept = None if len(going_on) == len(sentences) else torch.tensor(going_on)
        sentences = [sentences[i] for i in going_on]
        if sentences:
            totals = torch.tensor([[sum(h.gains) for h in s.alive] for s in sentences], device=scores.device)
            tokens = torch.tensor([h.tokens[-1] for s in sentences for h in s.alive])
            scores = step.advance(tokens, torch.tensor(rows), kept).unflatten(0, (len(sentences), -1))
    return results


@dataclass(frozen=True)
class _Partial:
    """A hypothesis that goes on: its tokens, and the log-probability each of them gained."""

    tokens: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()


class Candidate(NamedTuple):
    """A possible next token of hypothesis `parent` of a sentence."""

    total: float
    parent: int
    token: int
    gain: float


Fate = Literal["alive", "found", "dropped"]
Watch = Callable[[int, Sequence[Candidate], Sequence[Fate]], None]
"""Told at each step, for each sentence by its number, the candidates, best first, and what became of each.

The parent of a candidate is its place among those that were left alive one step before.
"""


class _Sentence:
    """One sentence of a beam search: the hypotheses that live, and those found."""

    def __init__(self, index: int, limit: int, enough: float) -> None:
        self.index, self.limit, self.enough = index, limit, enough
        self.alive = [_Partial()]
        self.parents: list[int] = []  # of each hypothesis alive, its place among those before the last step
        self.found: list[Hypothesis] = []
        self.done = False

    def extend(self, candidates: Sequence[Candidate], end: int, width: int, penalty: Penalty) -> list[Fate]:
        """Takes one step: `candidates` are the best continuations, best first; tells what became of each."""
        before, self.alive, self.parents = self.alive, [], []
        fates: list[Fate] = []
        for rank, (total, parent, token, gain) in enumerate(candidates):
            old = before[parent]
            gains = (*old.gains, gain)
            if token != end and len(self.alive) < width:
                self.alive.append(_Partial((*old.tokens, token), gains))
                self.parents.append(parent)
                fates.append("alive")
            elif token == end and rank < width and total > -math.inf:
                self.found.append(Hypothesis(old.tokens, gains, sum(gains) / penalty(len(gains)), finished=True))
                fates.append("found")
            else:
                fates.append("dropped")
        self.done = len(self.alive[0].gains) >= self.limit or self.settled(width, penalty)
        return fates

    def settled(self, width: int, penalty: Penalty) -> bool:
        """Whether enough is found, or none alive can still score higher than the worst of the `width` best found."""
        if len(self.found) >= self.enough:
            return True
        attainable = max(sum(h.gains) for h in self.alive) / penalty(self.limit)
        scores = sorted((h.score for h in self.found), reverse=True)[:width]
        return len(scores) == width and scores[-1] >= attainable

    def best(self, penalty: Penalty) -> list[Hypothesis]:
        """What was found, and what the length limit cut off, best first."""
        cut = [
            Hypothesis(h.tokens, h.gains, sum(h.gains) / penalty(len(h.gains)), finished=False)
            for h in self.alive
            if len(h.gains) >= self.limit and sum(h.gains) > -math.inf
        ]
        return sorted([*self.found, *cut], key=lambda h: -h.score)


def _best_continuations(totals: Tensor, scores: Tensor, count: int) -> list[list[Candidate]]:
    """Totals [B, W], log-probabilities [B, W, V] -> the best continuations of each sentence, best first."""
    sums = (totals[..., None] + scores).flatten(1)  # [B, W * V]
    values, places = sums.topk(min(count, sums.shape[1]))
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
    growing = [_Partial() for _ in limits for _ in range(rows)]
    done: list[Hypothesis | None] = [None] * len(growing)
    for tokens, gains in generate(step, rows, choose):
        for i, (token, gain) in enumerate(zip(tokens, gains, strict=True)):
            if done[i] is None:
                old = growing[i]
                total = (*old.gains, gain)
                ended = token == end
                growing[i] = _Partial(old.tokens if ended else (*old.tokens, token), total)
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
