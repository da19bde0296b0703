"""Translates the unfinished units of a document, from a translation memory or with a model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from regard.decoding.translation_results import MemoryMatch, Translation
from regard.faithful.faithful_translation import FaithfulResult
from regard.faithful.translation_memory import EXCHANGED, TranslationMemory
from regard.files.formats import Document, Unit
from regard.tokens import protected_pieces as protect

TOGETHER = 200
"""Number of units that are translated at once; the progress bar is updated after each step."""


@dataclass(frozen=True, slots=True)
class FilledUnit:
    """A unit of a document with its translation."""

    number: int  # index of the unit in the document
    unit: Unit
    made: FaithfulResult
    matches: tuple[MemoryMatch, ...] = ()  # memory matches, best first; the first was used if its score is 99 or 100

    @property
    def is_filled(self) -> bool:
        """True if there is a translation that keeps the protected pieces of the unit."""
        return self.made.how != "safe"

    @property
    def doubt(self) -> tuple[float, float]:
        """A sort key for reviewers: flagged units come first, then those with the lowest confidence."""
        confidence = self.made.confidence
        if confidence is None:
            confidence = 1.0 if self.made.how == "memory" else 0.5
        return (-len(self.made.flags), confidence)


Translate = Callable[[Sequence[Unit]], Sequence[FaithfulResult]]
"""A function that returns the translations of units in the same order."""


def wanted(document: Document, *, everything: bool = False) -> list[int]:
    """Returns the indices of the units without a finished translation, or of all non-empty units with `everything`."""
    units = enumerate(document.units)
    return [number for number, unit in units if unit.source.strip() and (everything or unit.state != "done")]


def fill(
    document: Document, translate: Translate, *, everything: bool = False, memory: TranslationMemory | None = None
) -> Generator[FilledUnit, None, None]:
    """Translates the wanted units of a document and yields them in order; equal texts are translated once."""
    numbers = wanted(document, everything=everything)
    known: dict[tuple[str, tuple[str, ...]], tuple[FaithfulResult, tuple[MemoryMatch, ...]]] = {}
    for start in range(0, len(numbers), TOGETHER):
        chunk = [(number, document.units[number]) for number in numbers[start : start + TOGETHER]]
        new = {(unit.source, unit.marks): unit for _, unit in chunk if (unit.source, unit.marks) not in known}
        matches = [tuple(memory.find(unit.source)) if memory else () for unit in new.values()]
        made = [recall(unit.source, unit.marks, each) for unit, each in zip(new.values(), matches, strict=True)]
        missing = [unit for unit, each in zip(new.values(), made, strict=True) if each is None]
        translations = iter(translate(missing) if missing else ())
        known |= {key: (each or next(translations), found) for key, each, found in zip(new, made, matches, strict=True)}
        for number, unit in chunk:
            yield FilledUnit(number, unit, *known[unit.source, unit.marks])


def translate_lines(
    texts: Iterable[str],
    translate: Callable[[list[str]], list[Translation]],
    memory: TranslationMemory,
    together: int = TOGETHER,
) -> Generator[Translation, None, None]:
    """Translates lines from the memory, or else with the model, and yields the translations in order."""
    remaining = iter(texts)
    while chunk := list(islice(remaining, together)):
        matches = [tuple(memory.find(text)) for text in chunk]
        known = [recall(text, (), each) for text, each in zip(chunk, matches, strict=True)]
        translations = iter(translate([text for text, each in zip(chunk, known, strict=True) if each is None]))
        for each, alike in zip(known, matches, strict=True):
            made = Translation(each.text, 0.0, 0.0, (), (), finished=True) if each else next(translations)
            yield replace(made, matches=alike)


def recall(source: str, marks: tuple[str, ...], matches: Sequence[MemoryMatch]) -> FaithfulResult | None:
    """Returns the best match as a translation if it is the same text and keeps the protected pieces, else None."""
    if not matches or matches[0].score < EXCHANGED:
        return None
    target = matches[0].target.strip()
    if protect.counts(source, marks) != protect.counts(target, marks):
        return None
    before, after = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    return FaithfulResult(before + target + after, "memory")
