"""Defines the interface of search engines, their outputs, and constraints on outputs; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol
from zlib import crc32

from regard.settings import DecodingSettings

ShouldEnd = Callable[[int, Sequence[int]], bool]
"""A callback that gets the number of a source and the tokens of its output so far; True ends the output."""


class SearchEngine(Protocol):
    """Searches for outputs, in batches; sources are token ids without begin and end tokens."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: ShouldEnd | None = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each source, best first; those of source i have at most `limits[i]` tokens.

        `should_end` has no effect on beam search. `constraints`, one for each source, always use beam search; if no
        output meets them, unconstrained outputs are returned.
        """
        ...

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Yields the tokens of one output, greedy or sampled, with or without the end token, until the caller stops."""
        ...

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Returns the log-probability of each token of a text except the first, given the tokens before it."""
        ...

    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """Returns these log-probabilities, each with the most likely tokens at that position and theirs."""
        ...


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """Sets of tokens that show where words begin and end."""

    inside: frozenset[int]  # tokens that begin with a letter without a space before it
    open: frozenset[int]  # tokens that end in a letter
    before: frozenset[int] = frozenset()  # tokens after which a word needs no space, such as an opening bracket

    def continues_word(self, last: int | None, token: int) -> bool:
        """Reports whether the word of token `last` continues in `token`."""
        return token in self.inside and last in self.open

    def can_begin(self, last: int | None, token: int) -> bool:
        """Reports whether a word can begin with `token` after token `last`, or at the start of a text."""
        return token not in self.inside or last is None or last in self.before


@dataclass(frozen=True)
class Constraints:
    """Token sequences that an output must or must not contain.

    Any one of its sequences meets an item of `required`. The same tokens cannot meet two items, and an item that occurs
    twice is required twice. With `words`, required sequences must begin and end at word boundaries, and forbidden ones
    must begin at one. `drafts` are good outputs that probably meet all constraints; the search follows them to their
    end, however improbable they are.
    """

    required: tuple[tuple[tuple[int, ...], ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    words: WordBoundaries | None = None
    drafts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(item and all(item) for item in self.required) or not all(self.forbidden):
            raise ValueError(
                "every item in constraints must contain at least one sequence, and no sequence may be empty"
            )

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)

    @property
    def length(self) -> int:
        """The minimum number of tokens needed to meet all required items."""
        return sum(min(map(len, item)) for item in self.required)

    def __add__(self, other: Constraints) -> Constraints:
        return Constraints(
            self.required + other.required,
            self.forbidden + other.forbidden,
            self.words or other.words,
            self.drafts + other.drafts,
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search; `tokens` does not include the end token."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]  # one per token, and one for the end token if it was generated
    score: float  # length-normalized log-probability, by which hypotheses are ranked
    finished: bool  # false if the length limit cut the output off
    alignment: tuple[tuple[float, ...], ...] = ()  # with decoding.alignment, one row for each log-probability

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)


Penalty = Callable[[int], float]
"""A function: number of tokens of a hypothesis, including the end -> divisor of its log-probability."""


def length_penalty(form: str, alpha: float) -> Penalty:
    """Returns the google penalty, ((5 + length) / 6) ^ alpha (Wu et al., 2016), or Marian's power, length ^ alpha."""
    if form == "google":
        return lambda length: float(((5 + length) / 6) ** alpha)
    return lambda length: float(length**alpha)


def random_source(ids: Sequence[int], number: int, settings: DecodingSettings) -> Random:
    """Returns a random generator for output `number` of a text; it does not depend on other texts or the engine."""
    return Random(crc32(repr((settings.seed, number, list(ids))).encode()))
