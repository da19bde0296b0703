"""Constrained beam search, whose outputs contain all required tokens and no forbidden ones.

The beam is divided into banks of hypotheses that lack the same number of required tokens (dynamic beam allocation;
Post & Vilar, 2018). Hypotheses that have met a requirement, at a cost in probability, therefore do not compete with
hypotheses that have not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.beam_search import Beam, Candidate, Fate, Partial, Rules
from regard.decoding.search_interface import Constraints, Hypothesis

LONGER = 4
"""The search stops when hypotheses are this many tokens longer than all drafts."""


class _State(NamedTuple):
    """One interpretation of the tokens so far: the items met, as bits, and the sequence in progress, if any."""

    met: int = 0
    sequence: int = -1
    position: int = 0  # number of tokens of the sequence so far


_States = frozenset[_State]


class _Goals:
    """Tracks how far a hypothesis meets the constraints of its sentence.

    A hypothesis has several states if its tokens have several interpretations: if sequences share tokens, only later
    tokens show which sequence it is. States that are worse than another state are dropped.
    """

    def __init__(self, constraints: Constraints) -> None:
        self.words, self.forbidden, self.drafts = constraints.words, constraints.forbidden, constraints.drafts
        items = constraints.required
        self.sequences = [(number, sequence) for number, item in enumerate(items) for sequence in dict.fromkeys(item)]
        self.shortest = [min(map(len, item)) for item in items]
        alike: defaultdict[frozenset[tuple[int, ...]], int] = defaultdict(int)
        self.twins = []  # for each item, the identical items before it, as bits; they are met first
        for number, item in enumerate(items):
            self.twins.append(alike[frozenset(item)])
            alike[frozenset(item)] |= 1 << number
        self.used = {token for _, sequence in self.sequences for token in sequence}
        self.memory: dict[tuple[_States, int | None, bool, bool], _States] = {}

    def after(self, states: _States, before: int | None, token: int) -> _States:
        """Returns the states after another token; `before` is the preceding token."""
        joined = self.words is not None and self.words.continues_word(before, token)
        begins = self.words is None or self.words.can_begin(before, token)
        key = (states, token if token in self.used else None, joined, begins)
        if key not in self.memory:
            after = set(self._read(states, token, joined, begins))
            self.memory[key] = _undominated(after, [number for number, _ in self.sequences])
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
                if joined:  # the word continues, so it is not the required one
                    continue
                met |= 1 << number
            yield _State(met)
            for place in self._next(met) if begins else ():
                if self.sequences[place][1][0] == token:
                    yield self._further(_State(met, place), token)

    def _further(self, state: _State, token: int) -> _State:
        """Returns the state after a token of its sequence; a complete sequence waits if its last word may continue."""
        number, sequence = self.sequences[state.sequence]
        position = state.position + 1
        if position == len(sequence) and not (self.words is not None and token in self.words.open):
            return _State(state.met | 1 << number)
        return _State(state.met, state.sequence, position)

    def _next(self, met: int) -> Iterator[int]:
        for place, (number, _) in enumerate(self.sequences):
            if not met >> number & 1 and not self.twins[number] & ~met:
                yield place

    def wanted(self, states: _States) -> set[int]:
        """Returns the tokens that continue or begin a required sequence."""
        tokens = set()
        for met, number, position in states:
            if number >= 0:
                item, sequence = self.sequences[number]
                if position < len(sequence):
                    tokens.add(sequence[position])
                    continue
                met |= 1 << item
            tokens |= {self.sequences[other][1][0] for other in self._next(met)}
        return tokens

    def drafted(self, tokens: tuple[int, ...], end: int) -> set[int]:
        """Returns the next tokens of all drafts that begin with these tokens."""
        length = len(tokens)
        return {(*draft, end)[length] for draft in self.drafts if draft[:length] == tokens}

    def lacking(self, states: _States) -> int:
        """Returns the minimum number of tokens that are still required."""
        return min(map(self._lacking, states))

    def _lacking(self, state: _State) -> int:
        met, remaining = state.met, 0
        if state.sequence >= 0:
            number, sequence = self.sequences[state.sequence]
            met, remaining = met | 1 << number, len(sequence) - state.position
        return remaining + sum(length for number, length in enumerate(self.shortest) if not met >> number & 1)

    def blocked(self, tokens: tuple[int, ...]) -> Iterator[int]:
        """Yields the tokens that would complete a forbidden sequence."""
        for sequence in self.forbidden:
            *start, last = sequence
            begins = len(tokens) - len(start)
            if begins < 0 or list(tokens[begins:]) != start:
                continue
            before = tokens[begins - 1] if begins else None
            if self.words is None or not self.words.continues_word(before, sequence[0]):
                yield last


def _undominated(states: set[_State], items: Sequence[int]) -> _States:
    """Removes the states that have met less than another state and have not progressed further."""
    idle = [state.met for state in states if state.sequence < 0]

    def is_worse(state: _State) -> bool:
        reached = state.met if state.sequence < 0 else state.met | 1 << items[state.sequence]
        alike = [s.met for s in states if s[1:] == state[1:] and s != state]
        return any(state.met & ~met == 0 for met in alike) or (
            state.sequence >= 0 and any(reached & ~met == 0 for met in idle)
        )

    return frozenset(state for state in states if not is_worse(state))


class ConstrainedBeam(Beam):
    """The beam of a sentence with constraints, which is wider by the number of required tokens."""

    def __init__(self, index: int, limit: int, rules: Rules, constraints: Constraints) -> None:
        super().__init__(index, limit, rules)
        self.goals = _Goals(constraints)
        self.states: dict[tuple[int, ...], _States] = {(): frozenset({_State()})}  # keys: tokens of the hypotheses
        self.width = rules.width + self.lacking(())

    def lacking(self, tokens: tuple[int, ...]) -> int:
        """Returns the minimum number of required tokens that a hypothesis still lacks."""
        return self.goals.lacking(self.states[tokens])

    def extend(self, candidates: Sequence[Candidate]) -> list[Fate]:
        """Takes one step like an unconstrained beam, but in each bank separately."""
        length = len(self.alive[0].gains) + 1
        banks: defaultdict[int, list[int]] = defaultdict(list)  # numbers of candidates
        for number, (total, parent, token, _) in enumerate(candidates):
            tokens = self.alive[parent].tokens
            states = self.states[tokens]
            if token != self.rules.end:
                states = self.goals.after(states, tokens[-1] if tokens else None, token)
            lacking = self.goals.lacking(states)
            if length + lacking <= self.limit and total > -math.inf:
                banks[lacking].append(number)
                self.states[*tokens, token] = states
        widths = _deal(self.width, {lacking: len(bank) for lacking, bank in banks.items()})
        fates: list[Fate] = ["dropped"] * len(candidates)
        alive = [h for lacking, bank in banks.items() for h in self.keep(candidates, bank, widths[lacking], fates)]
        self.alive = sorted(alive, key=lambda h: -h.total)
        self.states = {h.tokens: self.states[h.tokens] for h in alive}
        self.done = not alive or length >= self.limit or self.is_settled()
        return fates

    def wanted(self, partial: Partial) -> set[int]:
        """Returns the tokens that are always candidates, however improbable they are."""
        end, goals = self.rules.end, self.goals
        return {*goals.wanted(self.states[partial.tokens]), *goals.drafted(partial.tokens, end), end}

    def forbidden(self, partial: Partial) -> Iterator[int]:
        """Yields the tokens that must not follow: the last tokens of forbidden sequences, and a premature end."""
        yield from self.goals.blocked(partial.tokens)
        if self.lacking(partial.tokens):
            yield self.rules.end

    def is_drafted(self, parent: int, token: int) -> bool:
        return token in self.goals.drafted(self.alive[parent].tokens, self.rules.end)

    def is_settled(self) -> bool:
        """Reports whether the sentence has enough outputs, or no live hypothesis can become one of the best.

        Outputs that meet their requirements early are found early, however bad they are. With requirements, `patience`
        therefore does not count outputs: the search continues while a live hypothesis is better at its length.
        """
        rules, length = self.rules, len(self.alive[0].gains)
        if any(self.goals.drafted(h.tokens, rules.end) for h in self.alive):
            return False
        if self.found and self.goals.drafts and length > max(map(len, self.goals.drafts)) + LONGER:
            return True
        if not self.goals.sequences:
            return super().is_settled()
        longest = min(length + 1, self.limit) if rules.patience else self.limit
        attainable = max(h.total for h in self.alive) / rules.penalty(longest)
        scores = sorted((h.score for h in self.found), reverse=True)[: rules.best]
        return len(scores) == rules.best and scores[-1] >= attainable

    def is_output(self, partial: Partial) -> bool:
        return not self.lacking(partial.tokens)

    def best(self) -> list[Hypothesis]:
        """Returns the best outputs, and all drafts among the outputs, best first."""
        return [h for rank, h in enumerate(self.ranked()) if rank < self.rules.best or h.tokens in self.goals.drafts]


def _deal(width: int, sizes: dict[int, int]) -> dict[int, int]:
    """Distributes the places of a beam evenly to banks of these sizes, starting with the most complete bank."""
    widths = dict.fromkeys(sizes, 0)
    while width and (hungry := [bank for bank in sorted(sizes) if widths[bank] < sizes[bank]]):
        for bank in hungry[:width]:
            widths[bank] += 1
        width -= min(width, len(hungry))
    return widths


def constrained_continuations(beams: Sequence[ConstrainedBeam], scores: Tensor) -> Iterator[list[Candidate]]:
    """Log-probabilities [B, W, V] -> the candidates of each sentence, best first.

    Candidates are the most probable tokens of each hypothesis, and tokens of required sequences.
    """
    rules, device = beams[0].rules, scores.device
    rows = [(i, k, h) for i, beam in enumerate(beams) for k, h in enumerate(beam.alive)]
    barred = [(i, k, token) for i, k, h in rows for token in beams[i].forbidden(h)]
    if barred:
        scores = scores.index_put(torch.tensor(barred, device=device).unbind(1), scores.new_tensor(-math.inf))
    values, places = (each.tolist() for each in scores.topk(min(rules.width + 1, scores.shape[2])))
    wanted = [(i, k, token) for i, k, h in rows for token in beams[i].wanted(h)]
    further = scores[torch.tensor(wanted, device=device).unbind(1)].tolist()
    gains: list[dict[tuple[int, int], float]] = [{} for _ in beams]
    for i, k, _ in rows:
        gains[i].update({(k, token): gain for token, gain in zip(places[i][k], values[i][k], strict=True)})
    for (i, k, token), gain in zip(wanted, further, strict=True):
        gains[i][k, token] = gain
    for beam, mine in zip(beams, gains, strict=True):
        candidates = [Candidate(beam.alive[k].total + gain, k, token, gain) for (k, token), gain in mine.items()]
        yield sorted(candidates, key=lambda candidate: -candidate.total)
