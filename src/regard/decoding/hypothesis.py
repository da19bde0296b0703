"""What a search finds, what it is ranked by, and what a translator asks of a search; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

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


class WritingSearch(Search, Protocol):
    """What a writer asks for beyond that."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None = None,
    ) -> list[list[Hypothesis]]:
        """The same; `enough` can end an output early, unless it is searched for with a beam."""
        ...

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Of each token of a text but the first, after those before it."""
        ...


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
