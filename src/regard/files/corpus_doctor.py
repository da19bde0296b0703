"""What is wrong with a corpus, and what was done about it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.files.formats import Location, Pair
from regard.settings import DataSettings

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode's category Cc; the tab is gone when this is looked for
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, alone
EXAMPLES = 3
REASONS = {
    "undecodable": "not UTF-8",
    "empty": "one side or both are empty",
    "control characters": "control characters in the text",
    "too long": "a side is longer than data.max_characters",
    "no direction": "no two languages of a direction",
    "repeated language": "further texts of a language in one tu, of which the first is used",
}


@dataclass
class Report:
    """How many pairs were read, how many are kept, and why the others are not."""

    read: int = 0  # as a file has them: a message with all forms of its plural is one
    further: int = 0  # pairs that plurals and texts of several lines make beside
    kept: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unit: str = "pairs"
    notes: list[str] = field(default_factory=list)  # how files were taken that do not say it themselves

    @property
    def pairs(self) -> int:
        """All that were made of what was read."""
        return self.read + self.further

    def drop(self, kind: str, where: Location) -> None:
        """Count a pair that is left out, and remember the first places."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        places = self.examples.setdefault(kind, [])
        if len(places) < EXAMPLES:
            places.append(str(where))

    def note(self, line: str) -> None:
        """Remember how a file was taken."""
        if line not in self.notes:
            self.notes.append(line)

    def lines(self) -> list[str]:
        """The report for people, a line for each kind of fault."""
        more = f" ({self.pairs:,} with the forms of plurals and the lines of texts)" if self.further else ""
        told = [f"{self.read:,} {self.unit} read{more}, {self.kept:,} kept"]
        for kind, count in self.counts.items():
            places = ", ".join(self.examples[kind]) + (", ..." if count > len(self.examples[kind]) else "")
            told.append(f"{count:,} left out: {REASONS.get(kind, kind)} ({places})")
        return [*told, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """The report that `to_dict` gave."""
        return cls(**values)


def clean(pairs: Iterable[Pair], data: DataSettings, report: Report) -> Iterator[Pair]:
    """The usable pairs, tidied; the report tells what was left out."""
    for pair in pairs:
        source, target = tidy(pair.source), tidy(pair.target)
        if not source or not target:
            report.drop("empty", pair.where)
        elif CONTROL.search(source) or CONTROL.search(target):
            report.drop("control characters", pair.where)
        elif len(source) > data.max_characters or len(target) > data.max_characters:
            report.drop("too long", pair.where)
        else:
            report.kept += 1
            same = source == pair.source and target == pair.target
            yield pair if same else replace(pair, source=source, target=target)


def tidy(text: str) -> str:
    """`text` as a model sees it: composed characters (NFC), spaces for tabs, no white space around."""
    return unicodedata.normalize("NFC", text).replace("\t", " ").strip()


def require_kept(report: Report, files: Sequence[Path]) -> None:
    """Refuse a corpus of which nothing is left."""
    if not report.kept:
        reasons = "; ".join(report.lines()[1:]) if report.read else "there is no line in it"
        raise DataError(f"no usable {report.unit} in {' and '.join(map(str, files))}: {reasons}")


@dataclass
class Leak:
    """How much of a held-out set is also in the training data."""

    pairs: int = 0
    leaked: int = 0
    examples: list[str] = field(default_factory=list)


def leaks(train: Iterable[Pair], held_out: Mapping[str, Iterable[Pair]]) -> dict[str, Leak]:
    """For each held-out set, the pairs whose source sentence is also a training source; holds only these sets."""
    found = {name: Leak() for name in held_out}
    sought: dict[str, list[tuple[Leak, Location]]] = {}
    for name, pairs in held_out.items():
        for pair in pairs:
            found[name].pairs += 1
            sought.setdefault(pair.source, []).append((found[name], pair.where))
    for pair in train:
        for leak, where in sought.pop(pair.source, ()):
            leak.leaked += 1
            if len(leak.examples) < EXAMPLES:
                leak.examples.append(f"{where} is {pair.where}")
    return found
