"""Terms that a translation has to use, or must not use: found in texts, and checked in translations."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from regard.errors import DataError
from regard.faithful.inflection import Endings, WordUnit, word_units
from regard.tokens.text_pairs import Location


@dataclass(frozen=True, slots=True)
class Term:
    """What a term of the source is called in the target language, and what it must not be called there."""

    source: str
    targets: tuple[str, ...]  # any one of them will do; none: only the forbidden ones matter
    forbidden: tuple[str, ...] = ()
    note: str = ""
    where: Location | None = None

    @property
    def kept(self) -> bool:
        """Whether it is not translated."""
        return self.targets == (self.source,)

    def exact(self, text: str) -> bool:
        """Whether its upper and lower case letters matter: of what is kept, and of short names such as IT or USB."""
        return self.kept or (text.isupper() and 2 <= sum(map(str.isalpha, text)) <= 6)


class TermMatch(NamedTuple):
    """A term in a text, from one character to another."""

    term: Term
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TermOutcome:
    """What became of a term in a translation."""

    source: str
    targets: tuple[str, ...]
    state: Literal["placed", "missing", "forbidden"]
    text: str = ""  # what stands in the translation, unless the term is missing

    def __str__(self) -> str:
        if self.state == "forbidden":
            return f"{self.text!r} is used for {self.source!r}, but forbidden"
        wanted = " or ".join(map(repr, self.targets))
        return f"{wanted} is {'used' if self.state == 'placed' else 'missing'} for {self.source!r}"


class Glossary:
    """Some terms; the languages, where they are known, say which endings a word may have."""

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
        """The terms of a CSV, TSV or TBX file, for translations from one language into another.

        The columns of a table are source, target, forbidden and note; between several target terms stands |. A term
        without target terms, or with itself as one, is not translated; with nothing but forbidden ones, it may be
        called anything else. The languages may be left out unless a TBX file has more than two.
        """
        from regard.files.formats import glossary_tables as terms

        found = list(terms.read(Path(path), source, target))
        if not found:
            raise DataError("there is no term in it", path)
        return cls((Term(*each) for each in found), source, target)

    def find(self, text: str) -> list[Term]:
        """The terms of a text, each once."""
        return list({match.term.source: match.term for match in self.matches(text)}.values())

    def matches(self, text: str) -> Iterator[TermMatch]:
        """Where terms stand in a text: whole words, the longest where several begin; placeholders are no words."""
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
        """What became of each term of a source text in its translation; no two terms are met by the same words."""
        words, taken = word_units(output), set[int]()
        found = self.find(source)
        placed: dict[str, str] = {}
        for term in sorted(found, key=lambda term: -max(map(len, term.targets), default=0)):
            span = self._span(term, term.targets, words, taken)
            if span:
                taken.update(span)
                placed[term.source] = output[words[span[0]].start : words[span[-1]].end]
        outcomes = []
        for term in found:
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
        """The places of the words that are one of these target terms, and of no other; empty if there are none."""
        for target in sorted(targets, key=len, reverse=True):
            wanted, exact = word_units(target, whole=True), term.exact(target)
            for start in range(len(words) - len(wanted) + 1):
                span = range(start, start + len(wanted))
                if taken.isdisjoint(span) and self.target_endings.fit(wanted, words[start:], exact=exact):
                    return span
        return range(0)


@dataclass
class Tally:
    """What became of the terms of many translations."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcomes: Iterable[TermOutcome]) -> None:
        self.counts.update(outcome.state for outcome in outcomes)

    def __str__(self) -> str:
        placed, missing, forbidden = (self.counts[state] for state in ("placed", "missing", "forbidden"))
        return f"glossary: {placed + missing:,} terms required, {missing:,} missing; {forbidden:,} forbidden ones used"


def _tidied(term: Term) -> Term:
    targets = tuple(dict.fromkeys(map(_tidy, term.targets)))
    forbidden = tuple(word for word in dict.fromkeys(map(_tidy, term.forbidden)) if word not in targets)
    return replace(term, source=_tidy(term.source), targets=targets, forbidden=forbidden)


def _tidy(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _merged(first: Term, second: Term) -> Term:
    """A term that is there twice: what the one or the other allows is allowed, what either forbids is forbidden."""
    targets = tuple(dict.fromkeys(first.targets + second.targets))
    forbidden = tuple(word for word in dict.fromkeys(first.forbidden + second.forbidden) if word not in targets)
    return replace(first, targets=targets, forbidden=forbidden, note=first.note or second.note)
