"""The outputs of a search, the constraints on them, and the interface of search engines; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol
from zlib import crc32

from regard.settings import DecodingSettings

ShouldEnd = Callable[[int, Sequence[int]], bool]
"""Called with the number of a source and the tokens of its output so far; True ends the output."""


class SearchEngine(Protocol):
    """Finds outputs for sources, which are token ids without begin and end; it makes batches by itself."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: ShouldEnd | None = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each source, best first; those of source i have at most `limits[i]` tokens.

        `should_end` has no effect on a beam search. `constraints`, one for each source, are searched for with a beam;
        where no output meets them, unconstrained outputs are returned.
        """
        ...

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Yields the tokens of one output, greedy or sampled, until the caller stops; the end is one of them or not."""
        ...

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Returns the log-probability of each token of a text but the first, given the tokens before it."""
        ...

    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """Returns the same log-probabilities, each with the likeliest tokens at that place and theirs."""
        ...


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """The tokens at which words begin and end."""

    inside: frozenset[int]  # begin with a letter and no space before it
    open: frozenset[int]  # end in a letter
    before: frozenset[int] = frozenset()  # end in what precedes a word without a space, such as a bracket

    def go_on(self, last: int | None, token: int) -> bool:
        """Reports whether the word of token `last` continues in `token`."""
        return token in self.inside and last in self.open

    def begin(self, last: int | None, token: int) -> bool:
        """Reports whether a word can begin with `token` after token `last`, or at the start of a text."""
        return token not in self.inside or last is None or last in self.before


@dataclass(frozen=True)
class Constraints:
    """Token sequences that an output must contain, or must not contain.

    An item of `required` is met by any one of its sequences; no two items are met by the same tokens, and an item that
    occurs twice is required twice. With `words`, a required sequence counts only if it begins and ends as words do,
    and a forbidden one only if it begins as a word does. `drafts` are outputs that probably meet all constraints and
    are good: they are followed to their end, however improbable the model finds them.
    """

    required: tuple[tuple[tuple[int, ...], ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    words: WordBoundaries | None = None
    drafts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(item and all(item) for item in self.required) or not all(self.forbidden):
            raise ValueError("an item without sequences can never be met, and an empty sequence always is")

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)

    @property
    def length(self) -> int:
        """The minimum number of tokens that meet all required items."""
        return sum(min(map(len, item)) for item in self.required)

    def __add__(self, other: Constraints) -> Constraints:
        """Returns the constraints of both, with the first `words` that are known."""
        return Constraints(
            self.required + other.required,
            self.forbidden + other.forbidden,
            self.words or other.words,
            self.drafts + other.drafts,
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without the end, and their log-probabilities."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]  # one for each token, and one for the end if it was reached
    score: float  # by which hypotheses are ranked
    finished: bool  # false if the length limit cut the output off
    alignment: tuple[tuple[float, ...], ...] = ()  # with decoding.alignment, one row for each log-probability

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)


Penalty = Callable[[int], float]
"""Returns the divisor of the log-probability of a hypothesis from its number of tokens, end included."""


def length_penalty(form: str, alpha: float) -> Penalty:
    """Returns google's penalty, ((5 + length) / 6) ^ alpha (Wu et al., 2016), or Marian's power, length ^ alpha."""
    if form == "google":
        return lambda length: float(((5 + length) / 6) ** alpha)
    return lambda length: float(length**alpha)


def random_source(ids: Sequence[int], number: int, settings: DecodingSettings) -> Random:
    """Returns the random numbers for output `number` of a text, which depend on no other text and on no engine."""
    return Random(crc32(repr((settings.seed, number, list(ids))).encode()))
