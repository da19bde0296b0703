"""Counts the pairs of a corpus that are read, kept and left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.tokens.text_pairs import Location

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


def require_kept(report: Report, files: Sequence[Path]) -> None:
    """Refuse a corpus of which nothing is left."""
    if not report.kept:
        reasons = "; ".join(report.lines()[1:]) if report.read else "there is no line in it"
        raise DataError(f"no usable {report.unit} in {' and '.join(map(str, files))}: {reasons}")
