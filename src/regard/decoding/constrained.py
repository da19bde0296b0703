"""Beam search for outputs in which required tokens appear and forbidden ones do not.

The beam is dealt out between banks, hypotheses that lack equally many required tokens (dynamic beam allocation; Post &
Vilar, 2018): those that have met a requirement, which cost them probability, do not compete with those that have not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.hypothesis import Constraints, Hypothesis, Penalty
from regard.decoding.search import Candidate, Step

LONGER = 4
"""Tokens by which an output may be longer than all drafts and still be waited for."""


def constrained_search(
    step: Step,
    limits: Sequence[int],
    constraints: Sequence[Constraints],
    *,
    end: int,
    width: int,
    penalty: Penalty,
    patience: float = 0.0,
    best: int = 1,
) -> list[list[Hypothesis]]:
    """The `best` highest-scored outputs of each sentence that meet its constraints, best first; none if none is found.

    It is `beam_search` for a sentence without constraints. The beam of another is wider by its required tokens.
    """
    rules = _Rules(end, width, penalty, patience, best)
    sentences = [
        _Sentence(i, limit, _Goals(wanted), rules)
        for i, (limit, wanted) in enumerate(zip(limits, constraints, strict=True))
    ]
    results: list[list[Hypothesis]] = [[] for _ in limits]
    scores = step.start()[:, None, :]  # [B, W, V]: at first one hypothesis a sentence
    while sentences:
        for sentence, found in zip(sentences, _continuations(sentences, scores, rules), strict=True):
            sentence.extend(found)
        going_on = [i for i, sentence in enumerate(sentences) if not sentence.done]
        for sentence in sentences:
            if sentence.done:
                results[sentence.index] = sentence.best()
        before, rows = scores.shape[1], max((len(sentences[i].alive) for i in going_on), default=0)
        kept = None if len(going_on) == len(sentences) else torch.tensor(going_on)
        places = [(i, sentences[i].padded(row)) for i in going_on for row in range(rows)]
        sentences = [sentences[i] for i in going_on]
        if sentences:
            tokens = torch.tensor([h.tokens[-1] for _, h in places])
            parents = torch.tensor([i * before + h.parent for i, h in places])
            scores = step.advance(tokens, parents, kept).unflatten(0, (len(sentences), rows))
    return results


class _Rules(NamedTuple):
    """What is the same for all sentences of a search."""

    end: int
    width: int
    penalty: Penalty
    patience: float
    best: int


class _State(NamedTuple):
    """One way to read the tokens so far: the items met, as bits, and the sequence that is being followed, if any."""

    met: int = 0
    sequence: int = -1
    position: int = 0  # tokens of it that are there


_States = frozenset[_State]


class _Goals:
    """What a sentence has to have in it, and what of it a hypothesis has.

    A hypothesis carries every way to read its tokens that no other is better than, since where sequences share tokens
    only what comes later tells which of them was meant.
    """

    def __init__(self, constraints: Constraints) -> None:
        self.words, self.forbidden, self.drafts = constraints.words, constraints.forbidden, constraints.drafts
        items = constraints.required
        self.sequences = [(number, sequence) for number, item in enumerate(items) for sequence in dict.fromkeys(item)]
        self.shortest = [min(map(len, item)) for item in items]
        alike: defaultdict[frozenset[tuple[int, ...]], int] = defaultdict(int)
        self.twins = []  # of each item, the same items before it, which are met first
        for number, item in enumerate(items):
            self.twins.append(alike[frozenset(item)])
            alike[frozenset(item)] |= 1 << number
        self.used = {token for _, sequence in self.sequences for token in sequence}
        self.memory: dict[tuple[_States, int | None, bool, bool], _States] = {}

    def after(self, states: _States, before: int | None, token: int) -> _States:
        """The ways to read the tokens so far and one more; `before` is the last of those so far."""
        joined = self.words is not None and self.words.go_on(before, token)
        begins = self.words is None or self.words.begin(before, token)
        key = (states, token if token in self.used else None, joined, begins)
        if key not in self.memory:
            found = self._read(states, token, joined, begins)
            self.memory[key] = _undominated(found, [number for number, _ in self.sequences])
        return self.memory[key]

    def _read(self, states: _States, token: int, joined: bool, begins: bool) -> Iterator[_State]:
        for state in states:
            met = state.met
            if state.sequence >= 0:
                number, sequence = self.sequences[state.sequence]
                if state.position < len(sequence):
                    if sequence[state.position] == token:
                        yield self._further(state, token)
                    continue
                if joined:  # the word goes on: it was not the one that is required
                    continue
                met |= 1 << number
            yield _State(met)
            for place in self._next(met) if begins else ():
                if self.sequences[place][1][0] == token:
                    yield self._further(_State(met, place), token)

    def _further(self, state: _State, token: int) -> _State:
        """The state one token on; a sequence that is whole waits for the next token if its word may go on."""
        number, sequence = self.sequences[state.sequence]
        position = state.position + 1
        if position == len(sequence) and not (self.words is not None and token in self.words.open):
            return _State(state.met | 1 << number)
        return _State(state.met, state.sequence, position)

    def _next(self, met: int) -> Iterator[int]:
        """The sequences that can be begun."""
        for place, (number, _) in enumerate(self.sequences):
            if not met >> number & 1 and not self.twins[number] & ~met:
                yield place

    def wanted(self, states: _States) -> set[int]:
        """The tokens that lead on to what is required."""
        found = set()
        for met, place, position in states:
            if place >= 0 and position < len(self.sequences[place][1]):
                found.add(self.sequences[place][1][position])
                continue
            if place >= 0:
                met |= 1 << self.sequences[place][0]
            found |= {self.sequences[other][1][0] for other in self._next(met)}
        return found

    def drafted(self, tokens: tuple[int, ...], end: int) -> set[int]:
        """The tokens with which drafts go on after these."""
        length = len(tokens)
        return {(*draft, end)[length] for draft in self.drafts if draft[:length] == tokens}

    def lacking(self, states: _States) -> int:
        """The least number of tokens that are still required; 0 where all is there."""
        return min(map(self._lacking, states))

    def _lacking(self, state: _State) -> int:
        met, rest = state.met, 0
        if state.sequence >= 0:
            number, sequence = self.sequences[state.sequence]
            met, rest = met | 1 << number, len(sequence) - state.position
        return rest + sum(length for number, length in enumerate(self.shortest) if not met >> number & 1)

    def blocked(self, tokens: tuple[int, ...]) -> Iterator[int]:
        """The tokens that would make a forbidden sequence of the last ones."""
        for sequence in self.forbidden:
            *start, last = sequence
            begins = len(tokens) - len(start)
            if begins < 0 or list(tokens[begins:]) != start:
                continue
            before = tokens[begins - 1] if begins else None
            if self.words is None or not self.words.go_on(before, sequence[0]):
                yield last


def _undominated(states: Iterator[_State], items: Sequence[int]) -> _States:
    """The states without those that have met less than another and are no further."""
    every = set(states)
    idle = [state.met for state in every if state.sequence < 0]

    def beaten(state: _State) -> bool:
        reached = state.met if state.sequence < 0 else state.met | 1 << items[state.sequence]
        alike = [s.met for s in every if s[1:] == state[1:] and s != state]
        return any(state.met & ~met == 0 for met in alike) or (
            state.sequence >= 0 and any(reached & ~met == 0 for met in idle)
        )

    return frozenset(state for state in every if not beaten(state))


@dataclass(frozen=True)
class _Partial:
    """A hypothesis that goes on: its tokens, what each gained, its place one step before, and what it has met."""

    states: _States
    tokens: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    parent: int = 0
    total: float = 0.0


class _Sentence:
    """One sentence of the search: the hypotheses that live, and those found."""

    def __init__(self, index: int, limit: int, goals: _Goals, rules: _Rules) -> None:
        self.index, self.limit, self.goals, self.rules = index, limit, goals, rules
        start = frozenset({_State()})
        self.width = rules.width + goals.lacking(start)
        self.alive = [_Partial(start)]
        self.found: list[Hypothesis] = []
        self.cut: list[Hypothesis] = []
        self.done = False

    def padded(self, row: int) -> _Partial:
        """The hypothesis of a row; all sentences have equally many rows."""
        return self.alive[min(row, len(self.alive) - 1)]

    def extend(self, candidates: Sequence[Candidate]) -> None:
        """Takes one step: `candidates` are possible continuations, best first."""
        length = len(self.alive[0].gains) + 1
        banks: defaultdict[int, list[tuple[Candidate, _States]]] = defaultdict(list)
        for candidate in candidates:
            old = self.alive[candidate.parent]
            states = old.states
            if candidate.token != self.rules.end:
                states = self.goals.after(states, old.tokens[-1] if old.tokens else None, candidate.token)
            lacking = self.goals.lacking(states)
            if length + lacking <= self.limit and candidate.total > -math.inf:
                banks[lacking].append((candidate, states))
        slots = _deal(self.width, {lacking: len(bank) for lacking, bank in banks.items()})
        alive = [each for lacking, bank in banks.items() for each in self._survivors(bank, slots[lacking])]
        self.alive = sorted(alive, key=lambda h: -h.total)
        if length >= self.limit:
            self.cut = [self._result(h.tokens, h.gains, False) for h in self.alive if not self.goals.lacking(h.states)]
        self.done = not self.alive or length >= self.limit or self.settled(length)

    def _survivors(self, bank: Sequence[tuple[Candidate, _States]], slots: int) -> list[_Partial]:
        """As in `beam_search`: the first that end are found, the first that do not live on."""
        going_on: list[_Partial] = []
        for rank, ((total, parent, token, gain), states) in enumerate(bank):
            old = self.alive[parent]
            gains = (*old.gains, gain)
            drafted = token in self.goals.drafted(old.tokens, self.rules.end)
            if token == self.rules.end:
                if rank < slots or drafted:
                    self.found.append(self._result(old.tokens, gains, True))
            elif len(going_on) < slots or drafted:
                going_on.append(_Partial(states, (*old.tokens, token), gains, parent, total))
        return going_on

    def settled(self, length: int) -> bool:
        """Whether enough is found, or none alive can still be among the best.

        What meets its requirements early, and ends, is found early too, however bad it is. So where anything is
        required, patience does not count what was found: it asks whether one alive is better already.
        """
        rules, required = self.rules, bool(self.goals.sequences)
        if any(self.goals.drafted(h.tokens, rules.end) for h in self.alive):
            return False
        if self.found and self.goals.drafts and length > max(map(len, self.goals.drafts)) + LONGER:
            return True
        if rules.patience and not required and len(self.found) >= max(rules.best, round(rules.patience * rules.width)):
            return True
        longest = min(length + 1, self.limit) if rules.patience and required else self.limit
        attainable = max(h.total for h in self.alive) / rules.penalty(longest)
        count = rules.best if required else rules.width
        scores = sorted((h.score for h in self.found), reverse=True)[:count]
        return len(scores) == count and scores[-1] >= attainable

    def best(self) -> list[Hypothesis]:
        """What was found, and what the length limit cut off, best first; a draft is always among it."""
        ranked = sorted([*self.found, *self.cut], key=lambda h: -h.score)
        return [h for rank, h in enumerate(ranked) if rank < self.rules.best or h.tokens in self.goals.drafts]

    def _result(self, tokens: tuple[int, ...], gains: tuple[float, ...], finished: bool) -> Hypothesis:
        return Hypothesis(tokens, gains, sum(gains) / self.rules.penalty(len(gains)), finished)


def _deal(width: int, sizes: dict[int, int]) -> dict[int, int]:
    """The places of a beam, dealt out in turn between banks of these sizes, the one that lacks least first."""
    slots = dict.fromkeys(sizes, 0)
    left = width
    while left and (hungry := [bank for bank in sorted(sizes) if slots[bank] < sizes[bank]]):
        for bank in hungry[:left]:
            slots[bank] += 1
        left -= min(left, len(hungry))
    return slots


def _continuations(sentences: Sequence[_Sentence], scores: Tensor, rules: _Rules) -> Iterator[list[Candidate]]:
    """Log-probabilities [B, W, V] -> for each sentence, best first, what each hypothesis goes on with.

    That is its most probable tokens, as many as could all be kept, and those that lead to what is required.
    """
    device, rows = scores.device, [(i, k, h) for i, s in enumerate(sentences) for k, h in enumerate(s.alive)]
    barred = [(i, k, token) for i, k, h in rows for token in _barred(sentences[i].goals, h, rules.end)]
    if barred:
        scores = scores.index_put(torch.tensor(barred, device=device).unbind(1), scores.new_tensor(-math.inf))
    values, places = scores.topk(min(rules.width + 1, scores.shape[2]))
    top = zip(values.tolist(), places.tolist(), strict=True)
    wanted = [(i, k, token) for i, k, h in rows for token in _wanted(sentences[i].goals, h, rules.end)]
    further = scores[torch.tensor(wanted, device=device).unbind(1)].tolist()
    gains: list[dict[tuple[int, int], float]] = [{} for _ in sentences]
    for sentence, mine, (row_values, row_places) in zip(sentences, gains, top, strict=True):
        for k in range(len(sentence.alive)):
            mine.update({(k, token): gain for token, gain in zip(row_places[k], row_values[k], strict=True)})
    for (i, k, token), gain in zip(wanted, further, strict=True):
        gains[i][k, token] = gain
    for sentence, mine in zip(sentences, gains, strict=True):
        found = [Candidate(sentence.alive[k].total + gain, k, token, gain) for (k, token), gain in mine.items()]
        yield sorted(found, key=lambda candidate: -candidate.total)


def _wanted(goals: _Goals, hypothesis: _Partial, end: int) -> set[int]:
    return {*goals.wanted(hypothesis.states), *goals.drafted(hypothesis.tokens, end), end}


def _barred(goals: _Goals, hypothesis: _Partial, end: int) -> Iterator[int]:
    yield from goals.blocked(hypothesis.tokens)
    if goals.lacking(hypothesis.states):
        yield end
