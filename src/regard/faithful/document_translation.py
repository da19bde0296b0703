"""Fills in what is not translated in a document: from a memory where that has the same text, else with a model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from regard.decoding.translator import Translation
from regard.faithful.translation_memory import EXCHANGED, Memory, MemoryMatch
from regard.files.formats import Document, Unit
from regard.tokens import protected_pieces as protect
from regard.tokens.text_pairs import Location

TOGETHER = 200
"""Units that are translated at once: each such step moves the bar."""


@dataclass(frozen=True, slots=True)
class Made:
    """A translation of a unit."""

    text: str
    how: str = "model"  # or "memory"; "repaired" to keep the placeholders; "safe" is the source, since nothing else was
    confidence: float | None = None
    flags: tuple[str, ...] = ()  # what a person has to look at


@dataclass(frozen=True, slots=True)
class Outcome:
    """A unit that was filled in, and what is known of its translation."""

    number: int  # of the unit in its document
    unit: Unit
    made: Made
    matches: tuple[MemoryMatch, ...] = ()  # of the memory, the best first; the first was used if its score is 99 or 100

    @property
    def is_filled(self) -> bool:
        """Whether there is a translation; where none could keep what must be kept, the unit is left as it is."""
        return self.made.how != SAFE

    @property
    def doubt(self) -> tuple[float, float]:
        """What a reviewer sorts by: what is flagged comes before all else, then what is trusted least."""
        trust = self.made.confidence
        if trust is None:
            trust = 1.0 if self.made.how == MEMORY else 0.5
        return (-len(self.made.flags), trust)


MEMORY, SAFE = "memory", "safe"

Translate = Callable[[Sequence[Unit]], Sequence[Made]]
"""Translates the sources of some units, as many as there are."""


def wanted(document: Document, *, everything: bool = False) -> list[int]:
    """The units to fill in, by number: those without a finished translation or, if asked for, all; never empty ones."""
    return [
        number
        for number, unit in enumerate(document.units)
        if unit.source.strip() and (everything or unit.state != "done")
    ]


def fill(
    document: Document, translate: Translate, *, everything: bool = False, memory: Memory | None = None
) -> Generator[Outcome, None, None]:
    """A translation of every unit that is wanted, in their order; equal texts are translated once."""
    numbers = wanted(document, everything=everything)
    known: dict[tuple[str, tuple[str, ...]], tuple[Made, tuple[MemoryMatch, ...]]] = {}
    for start in range(0, len(numbers), TOGETHER):
        chunk = [(number, document.units[number]) for number in numbers[start : start + TOGETHER]]
        new = {_key(unit): unit for _, unit in chunk if _key(unit) not in known}
        known.update(_translated(new, translate, memory))
        for number, unit in chunk:
            yield Outcome(number, unit, *known[_key(unit)])


def _key(unit: Unit) -> tuple[str, tuple[str, ...]]:
    return unit.source, unit.marks


def _translated(
    units: dict[tuple[str, tuple[str, ...]], Unit], translate: Translate, memory: Memory | None
) -> dict[tuple[str, tuple[str, ...]], tuple[Made, tuple[MemoryMatch, ...]]]:
    """What the memory knows is not given to the model."""
    matches = {key: tuple(memory.find(unit.source)) if memory else () for key, unit in units.items()}
    made = {key: remembered(unit, matches[key]) for key, unit in units.items()}
    rest = [key for key, found in made.items() if found is None]
    made |= zip(rest, translate([units[key] for key in rest]) if rest else (), strict=True)
    return {key: (found, matches[key]) for key, found in made.items() if found is not None}


def lines(
    texts: Iterable[str], translate: Callable[[list[str]], list[Translation]], memory: Memory, together: int = TOGETHER
) -> Generator[Translation, None, None]:
    """Translations of any number of lines, in their order; what the memory has is not given to the model."""
    rest = iter(texts)
    while chunk := list(islice(rest, together)):
        matches = [tuple(memory.find(text)) for text in chunk]
        known = [remembered(Unit(text, "", Location("", 0)), found) for text, found in zip(chunk, matches, strict=True)]
        made = iter(translate([text for text, found in zip(chunk, known, strict=True) if found is None]))
        for found, alike in zip(known, matches, strict=True):
            if found is None:
                yield replace(next(made), matches=alike)
            else:
                yield Translation(found.text, 0.0, 0.0, (), (), finished=True, matches=alike)


def remembered(unit: Unit, matches: Sequence[MemoryMatch]) -> Made | None:
    """The translation of the same text, if the memory has one that keeps what must be kept."""
    if not matches or matches[0].score < EXCHANGED:
        return None
    source, target = unit.source, matches[0].target.strip()
    if protect.counts(source, unit.marks) != protect.counts(target, unit.marks):
        return None
    lead = source[: len(source) - len(source.lstrip())]
    return Made(lead + target + source[len(source.rstrip()) :], MEMORY)
