"""Defines translations, translation memory matches, and the interface of glossaries; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from regard.decoding.search_interface import Constraints, Hypothesis
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """An entry of a translation memory whose source resembles the text to translate."""

    score: int  # similarity from 0 to 100
    source: str
    target: str  # if the score is 99, adapted to the numbers and placeholders of the text


@dataclass(frozen=True, slots=True)
class TermOutcome:
    """The outcome of a glossary term in a translation."""

    source: str
    targets: tuple[str, ...]
    state: Literal["placed", "missing", "forbidden"]
    text: str = ""  # the words used in the translation, unless the term is missing

    def __str__(self) -> str:
        if self.state == "forbidden":
            return f"{self.text!r} is used for {self.source!r}, but forbidden"
        wanted = " or ".join(map(repr, self.targets))
        return f"{wanted} is {'used' if self.state == 'placed' else 'missing'} for {self.source!r}"


@dataclass(frozen=True)
class Translation:
    """A translation with its probability and other details.

    >>> best = translator.translate(["A dog runs."], beam=4, alternatives=2)[0]
    >>> best.text, best.score, [other.text for other in best.alternatives]
    """

    text: str
    score: float  # length-normalized log-probability, by which alternatives are ranked
    log_probability: float
    tokens: tuple[str, ...] = field(repr=False)
    token_log_probabilities: tuple[float, ...] = field(
        repr=False
    )  # one per token, and one for the end if it was reached
    finished: bool  # false if the length limit cut the translation off
    alternatives: tuple[Translation, ...] = ()
    confidence: float | None = None  # from 0 to 1, if the model folder has a calibration curve
    matches: tuple[MemoryMatch, ...] = ()  # with a translation memory; a match with score 99 or 100 is the translation
    source_tokens: tuple[str, ...] = field(default=(), repr=False)  # with decoding.alignment: one per alignment column
    alignment: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # attention of each token to the source
    glossary: tuple[TermOutcome, ...] = ()  # with a glossary: the outcome of each term in the source


SearchAgain = Callable[[Sequence[int], Sequence[Constraints], DecodingSettings], list[list[Hypothesis]]]
"""A function that searches again for the texts with these numbers, with additional constraints for each."""


class TermSearch(Protocol):
    """Glossary terms, tokenized for a model, that a search can be made to include."""

    def keep(
        self, texts: Sequence[str], results: list[list[Hypothesis]], search: SearchAgain, settings: DecodingSettings
    ) -> list[list[Hypothesis]]:
        """Searches again for the texts whose translations lack a term or use a forbidden one."""
        ...

    def outcomes(self, text: str, hypothesis: Hypothesis) -> list[TermOutcome]:
        """Returns the outcome of each term of a text in its translation."""
        ...


@runtime_checkable
class TermSource(Protocol):
    """Terms that translations must use or must not use, such as `regard.faithful.glossary.Glossary`."""

    def terminology(self, source: Tokenizer, target: Tokenizer) -> TermSearch:
        """Converts the terms to tokens of a model."""
        ...
