"""What a search finds, what it is ranked by, and what a translator asks of a search; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol
from zlib import crc32

from regard.settings import DecodingSettings


class Search(Protocol):
    """Finds what follows sources, ids without begin and end; it batches any number of them by itself."""

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first; those of source i end by `limits[i]` tokens."""
        ...

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Token by token, greedy or drawn, the end too if there is one: until the caller stops asking."""
        ...


Enough = Callable[[int, Sequence[int]], bool]
"""Asked with the number of a source and the tokens of an output so far: whether it shall end there."""


def ask(enough: Enough, numbers: Sequence[int], place: int, tokens: Sequence[int]) -> bool:
    """`enough`, asked by the place of a source among some that have these numbers."""
    return enough(numbers[place], tokens)


class ConstrainedSearch(Search, Protocol):
    """A search that can be told what an output must have in it, and what it must not have."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None = None,
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The same; `enough` can end an output early, unless it is searched for with a beam.

        Sources that have `constraints` are searched for with a beam, whatever the others are; where no output meets
        them, the outputs are those without them.
        """
        ...


class WritingSearch(ConstrainedSearch, Protocol):
    """What a writer asks for beyond that."""

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Of each token of a text but the first, after those before it."""
        ...

    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """The same, each with the likeliest tokens that could have stood there, and how likely they were."""
        ...


@dataclass(frozen=True, eq=False)
class Words:
    """Where words begin and end, by tokens."""

    inside: frozenset[int]  # begin with a letter and no space before it
    open: frozenset[int]  # end in a letter
    before: frozenset[int] = frozenset()  # end in what stands before a word without a space, such as a bracket

    def go_on(self, last: int | None, token: int) -> bool:
        """Whether the word of one token goes on in the next."""
        return token in self.inside and last in self.open

    def begin(self, last: int | None, token: int) -> bool:
        """Whether a word can begin with a token, after another one or at the start of a text."""
        return token not in self.inside or last is None or last in self.before


@dataclass(frozen=True)
class Constraints:
    """What an output must have in it, and what it must not have, as tokens.

    An item of `required` is met by any one of its sequences; no two items are met by the same tokens, so that an item
    that is there twice is required twice. With `words`, a required sequence counts where it begins as a word does and
    no word goes on behind it, and a forbidden one where no word goes on into it. `drafts` are outputs that are likely
    to meet all that and to be good: they are followed to their end, whatever the model thinks of them.
    """

    required: tuple[tuple[tuple[int, ...], ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    words: Words | None = None
    drafts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(item and all(item) for item in self.required) or not all(self.forbidden):
            raise ValueError("an item without sequences can never be met, and an empty sequence always is")

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden)

    @property
    def length(self) -> int:
        """The least number of tokens that meet what is required."""
        return sum(min(map(len, item)) for item in self.required)

    def __add__(self, other: Constraints) -> Constraints:
        """Both; the words are those of the first that has any."""
        return Constraints(
            self.required + other.required,
            self.forbidden + other.forbidden,
            self.words or other.words,
            self.drafts + other.drafts,
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without the end, and how probable the model finds it."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]  # one for each token, and for the end if it was reached
    score: float  # what hypotheses are ranked by
    finished: bool  # false where the length limit cut it off
    alignment: tuple[tuple[float, ...], ...] = ()  # if asked for, a row for each log-probability: see DecodingSettings

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)


Penalty = Callable[[int], float]
"""What the log-probability of a hypothesis of so many tokens, its end included, is divided by."""


def google_penalty(alpha: float) -> Penalty:
    """((5 + length) / 6) ^ alpha (Wu et al., 2016), used by the paper with alpha 0.6."""
    return lambda length: float(((5 + length) / 6) ** alpha)


def power_penalty(alpha: float) -> Penalty:
    """length ^ alpha (Marian, Hugging Face)."""
    return lambda length: float(length**alpha)


def length_penalty(form: str, alpha: float) -> Penalty:
    """The penalty of this name: google, or power."""
    return google_penalty(alpha) if form == "google" else power_penalty(alpha)


def die_for(ids: Sequence[int], number: int, settings: DecodingSettings) -> Random:
    """The luck of output `number` of a text: it depends on the seed and the text alone, not on its batch or engine."""
    return Random(crc32(repr((settings.seed, number, list(ids))).encode()))


def side_by_side(
    alignments: Sequence[Sequence[Sequence[float]]], widths: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """The alignments of the parts of a text as one: no part looks at another."""
    rows: list[tuple[float, ...]] = []
    for number, alignment in enumerate(alignments):
        before, after = sum(widths[:number]), sum(widths[number + 1 :])
        rows += [(*[0.0] * before, *row, *[0.0] * after) for row in alignment]
    return tuple(rows)
