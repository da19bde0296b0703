"""Glossaries: terms that translations must or must not use."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from regard.decoding.translation_results import TermOutcome
from regard.errors import DataError
from regard.faithful.inflection import Endings, WordUnit, word_units
from regard.tokens.text_pairs import Location

if TYPE_CHECKING:
    from regard.faithful.glossary_constraints import Terminology
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Term:
    """A source term with its allowed and forbidden translations."""

    source: str
    targets: tuple[str, ...]  # allowed translations; empty if all but the forbidden ones are allowed
    forbidden: tuple[str, ...] = ()
    note: str = ""
    where: Location | None = None

    @property
    def kept(self) -> bool:
        """True if the term must stay untranslated."""
        return self.targets == (self.source,)

    def exact(self, text: str) -> bool:
        """Reports whether case matters, as in untranslated terms and in abbreviations such as IT or USB."""
        return self.kept or (text.isupper() and 2 <= sum(map(str.isalpha, text)) <= 6)


class TermMatch(NamedTuple):
    """An occurrence of a term in a text."""

    term: Term
    start: int
    end: int


class Glossary:
    """A list of terms; the languages, if known, determine which inflected endings match a term."""

    def __init__(self, terms: Iterable[Term], source: str = "", target: str = "") -> None:
        merged: dict[str, Term] = {}
        for term in map(_tidied, terms):
            merged[term.source] = _merged(merged[term.source], term) if term.source in merged else term
        self.terms = tuple(merged.values())
        self.source_endings, self.target_endings = Endings.of(source, most=2), Endings.of(target)
        self._index: defaultdict[str, list[tuple[Term, list[WordUnit]]]] = defaultdict(list)
        for term in sorted(self.terms, key=lambda term: not term.exact(term.source)):
            wanted = word_units(term.source, whole=True)
            self._index[wanted[0].folded].append((term, wanted))

    @classmethod
    def read(cls, path: Path | str, source: str = "", target: str = "") -> Glossary:
        """Reads the terms of a CSV, TSV or TBX file for translations from `source` into `target`.

        The columns of a table are source, target, forbidden and note; several target terms are separated by |. A term
        stays untranslated if its target is empty or equal to the source. A term with forbidden translations only may be
        translated in any other way. The languages are optional unless a TBX file has more than two.
        """
        from regard.files.formats import glossary_tables as terms

        rows = list(terms.read(Path(path), source, target))
        if not rows:
            raise DataError("the glossary has no terms", path)
        return cls((Term(*row) for row in rows), source, target)

    def terminology(self, source: Tokenizer, target: Tokenizer) -> Terminology:
        """Combines the glossary with the tokenizers of a model."""
        from regard.faithful.glossary_constraints import Terminology

        return Terminology(self, source, target)

    def find(self, text: str) -> list[Term]:
        """Returns the terms that occur in a text, without duplicates."""
        return list({match.term.source: match.term for match in self.matches(text)}.values())

    def matches(self, text: str) -> Iterator[TermMatch]:
        """Yields the occurrences of terms in a text as whole words outside placeholders, preferring longer terms."""
        words, place = word_units(text), 0
        while place < len(words):
            best, length = None, 0
            for term, wanted in self._beginning(words[place].folded):
                exact = term.exact(term.source)
                if len(wanted) > length and self.source_endings.fit(wanted, words[place:], exact=exact):
                    best, length = term, len(wanted)
            if best is not None:
                yield TermMatch(best, words[place].start, words[place + length - 1].end)
            place += max(1, length)

    def _beginning(self, word: str) -> Iterator[tuple[Term, list[WordUnit]]]:
        for stem in self.source_endings.stems(word):
            yield from self._index.get(stem, ())

    def check(self, source: str, output: str) -> list[TermOutcome]:
        """Returns the outcome of each term of a source text in its translation; a word counts for one term only."""
        words, taken = word_units(output), set[int]()
        terms = self.find(source)
        placed: dict[str, str] = {}
        for term in sorted(terms, key=lambda term: -max(map(len, term.targets), default=0)):
            span = self._span(term, term.targets, words, taken)
            if span:
                taken.update(span)
                placed[term.source] = output[words[span[0]].start : words[span[-1]].end]
        outcomes = []
        for term in terms:
            if term.targets:
                state: Literal["placed", "missing"] = "placed" if term.source in placed else "missing"
                outcomes.append(TermOutcome(term.source, term.targets, state, placed.get(term.source, "")))
            for word in term.forbidden:
                span = self._span(term, [word], words, taken)
                if span:
                    used = output[words[span[0]].start : words[span[-1]].end]
                    outcomes.append(TermOutcome(term.source, term.targets, "forbidden", used))
        return outcomes

    def _span(self, term: Term, targets: Sequence[str], words: Sequence[WordUnit], taken: set[int]) -> range:
        """Returns the range of the first words that match a target term and are not taken, or an empty range."""
        for target in sorted(targets, key=len, reverse=True):
            wanted, exact = word_units(target, whole=True), term.exact(target)
            for start in range(len(words) - len(wanted) + 1):
                span = range(start, start + len(wanted))
                if taken.isdisjoint(span) and self.target_endings.fit(wanted, words[start:], exact=exact):
                    return span
        return range(0)


def summarize_outcomes(states: Counter[str]) -> str:
    """Formats the number of terms in each state as a line of text."""
    placed, missing, forbidden = (states[state] for state in ("placed", "missing", "forbidden"))
    return f"glossary: {placed + missing:,} terms required, {missing:,} missing; {forbidden:,} forbidden terms used"


def _tidied(term: Term) -> Term:
    targets = tuple(dict.fromkeys(map(_tidy, term.targets)))
    forbidden = tuple(word for word in dict.fromkeys(map(_tidy, term.forbidden)) if word not in targets)
    return replace(term, source=_tidy(term.source), targets=targets, forbidden=forbidden)


def _tidy(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _merged(first: Term, second: Term) -> Term:
    """Merges two entries of a term; a translation that one entry allows and the other forbids is allowed."""
    targets = tuple(dict.fromkeys(first.targets + second.targets))
    forbidden = tuple(word for word in dict.fromkeys(first.forbidden + second.forbidden) if word not in targets)
    return replace(first, targets=targets, forbidden=forbidden, note=first.note or second.note)
