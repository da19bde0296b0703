"""Constraints of a beam search: required tokens appear in its outputs, and forbidden ones do not.

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

from regard.decoding.beam_search import Beam, Candidate, Fate, Partial, Rules
from regard.decoding.hypotheses import Constraints, Hypothesis

LONGER = 4
"""Tokens by which an output may be longer than all drafts and still be waited for."""


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
class ConstrainedPartial(Partial):
    """A hypothesis that is alive, with the ways to read what it has met of its constraints."""

    states: _States = frozenset({_State()})


class ConstrainedBeam(Beam):
    """The hypotheses of one sentence that has constraints; the beam is wider by the tokens that are required."""

    alive: Sequence[ConstrainedPartial]

    def __init__(self, index: int, limit: int, rules: Rules, constraints: Constraints) -> None:
        super().__init__(index, limit, rules)
        self.goals = _Goals(constraints)
        self.alive = [ConstrainedPartial()]
        self.width = rules.width + self.goals.lacking(self.alive[0].states)
        self.cut: list[Hypothesis] = []

    def extend(self, candidates: Sequence[Candidate]) -> list[Fate]:
        """Takes one step, as a beam without constraints does in each of its banks."""
        length = len(self.alive[0].gains) + 1
        banks: defaultdict[int, list[tuple[int, _States]]] = defaultdict(list)  # places of candidates
        for place, candidate in enumerate(candidates):
            old = self.alive[candidate.parent]
            states = old.states
            if candidate.token != self.rules.end:
                states = self.goals.after(states, old.tokens[-1] if old.tokens else None, candidate.token)
            lacking = self.goals.lacking(states)
            if length + lacking <= self.limit and candidate.total > -math.inf:
                banks[lacking].append((place, states))
        slots = _deal(self.width, {lacking: len(bank) for lacking, bank in banks.items()})
        fates: list[Fate] = ["dropped"] * len(candidates)
        alive = [
            each for lacking, bank in banks.items() for each in self.survivors(candidates, bank, slots[lacking], fates)
        ]
        self.alive = sorted(alive, key=lambda h: -h.total)
        if length >= self.limit:
            self.cut = [
                self.output(h.tokens, h.gains, finished=False) for h in self.alive if not self.goals.lacking(h.states)
            ]
        self.done = not self.alive or length >= self.limit or self.settled()
        return fates

    def survivors(
        self, candidates: Sequence[Candidate], bank: Sequence[tuple[int, _States]], slots: int, fates: list[Fate]
    ) -> list[ConstrainedPartial]:
        """Returns what stays alive in a bank; those among its first `slots` that end are found."""
        alive: list[ConstrainedPartial] = []
        for rank, (place, states) in enumerate(bank):
            _, parent, token, gain = candidates[place]
            old = self.alive[parent]
            gains = (*old.gains, gain)
            drafted = token in self.goals.drafted(old.tokens, self.rules.end)
            if token == self.rules.end:
                if rank < slots or drafted:
                    self.found.append(self.output(old.tokens, gains, finished=True))
                    fates[place] = "found"
            elif len(alive) < slots or drafted:
                alive.append(ConstrainedPartial((*old.tokens, token), gains, parent, states))
                fates[place] = "alive"
        return alive

    def settled(self) -> bool:
        """Tells whether enough is found, or nothing alive can still be among the best.

        What meets its requirements early, and ends, is found early too, however bad it is. So where anything is
        required, patience does not count what was found: it asks whether one alive is better already.
        """
        rules, required, length = self.rules, bool(self.goals.sequences), len(self.alive[0].gains)
        if any(self.goals.drafted(h.tokens, rules.end) for h in self.alive):
            return False
        if self.found and self.goals.drafts and length > max(map(len, self.goals.drafts)) + LONGER:
            return True
        if not required:
            return super().settled()
        longest = min(length + 1, self.limit) if rules.patience else self.limit
        attainable = max(h.total for h in self.alive) / rules.penalty(longest)
        scores = sorted((h.score for h in self.found), reverse=True)[: rules.best]
        return len(scores) == rules.best and scores[-1] >= attainable

    def best(self) -> list[Hypothesis]:
        """Returns what was found, and what the length limit cut off, best first; a draft is always among it."""
        ranked = sorted([*self.found, *self.cut], key=lambda h: -h.score)
        return [h for rank, h in enumerate(ranked) if rank < self.rules.best or h.tokens in self.goals.drafts]


def _deal(width: int, sizes: dict[int, int]) -> dict[int, int]:
    """The places of a beam, dealt out in turn between banks of these sizes, the one that lacks least first."""
    slots = dict.fromkeys(sizes, 0)
    left = width
    while left and (hungry := [bank for bank in sorted(sizes) if slots[bank] < sizes[bank]]):
        for bank in hungry[:left]:
            slots[bank] += 1
        left -= min(left, len(hungry))
    return slots


def constrained_continuations(beams: Sequence[ConstrainedBeam], scores: Tensor) -> Iterator[list[Candidate]]:
    """Log-probabilities [B, W, V] -> for each sentence, best first, the continuations of each hypothesis.

    These are its most probable tokens, as many as could all be kept, and those that lead to what is required.
    """
    rules, device = beams[0].rules, scores.device
    rows = [(i, k, h) for i, beam in enumerate(beams) for k, h in enumerate(beam.alive)]
    barred = [(i, k, token) for i, k, h in rows for token in _barred(beams[i].goals, h, rules.end)]
    if barred:
        scores = scores.index_put(torch.tensor(barred, device=device).unbind(1), scores.new_tensor(-math.inf))
    values, places = scores.topk(min(rules.width + 1, scores.shape[2]))
    top = zip(values.tolist(), places.tolist(), strict=True)
    wanted = [(i, k, token) for i, k, h in rows for token in _wanted(beams[i].goals, h, rules.end)]
    further = scores[torch.tensor(wanted, device=device).unbind(1)].tolist()
    gains: list[dict[tuple[int, int], float]] = [{} for _ in beams]
    for beam, mine, (row_values, row_places) in zip(beams, gains, top, strict=True):
        for k in range(len(beam.alive)):
            mine.update({(k, token): gain for token, gain in zip(row_places[k], row_values[k], strict=True)})
    for (i, k, token), gain in zip(wanted, further, strict=True):
        gains[i][k, token] = gain
    for beam, mine in zip(beams, gains, strict=True):
        found = [Candidate(beam.alive[k].total + gain, k, token, gain) for (k, token), gain in mine.items()]
        yield sorted(found, key=lambda candidate: -candidate.total)


def _wanted(goals: _Goals, hypothesis: ConstrainedPartial, end: int) -> set[int]:
    return {*goals.wanted(hypothesis.states), *goals.drafted(hypothesis.tokens, end), end}


def _barred(goals: _Goals, hypothesis: ConstrainedPartial, end: int) -> Iterator[int]:
    yield from goals.blocked(hypothesis.tokens)
    if goals.lacking(hypothesis.states):
        yield end
