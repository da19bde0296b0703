"""Counts how many pairs of a corpus are read, kept and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import DataError
from regard.tokens.text_pairs import Location

EXAMPLES = 3
REASONS = {
    "undecodable": "not UTF-8",
    "empty": "one side or both are empty",
    "control characters": "control characters in the text",
    "too long": "a side is longer than data.max_characters",
    "no direction": "the languages do not match any direction",
    "repeated language": "several texts in the same language in one tu; the first is used",
}


@dataclass
class Report:
    """The numbers of pairs that were read and kept, and the reasons why the others were dropped."""

    read: int = 0  # number of entries; a message with all its plural forms counts as one
    further: int = 0  # number of additional pairs, from plural forms and texts of several lines
    kept: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    unit: str = "pairs"
    notes: list[str] = field(default_factory=list)  # how ambiguous files were interpreted

    @property
    def pairs(self) -> int:
        """The number of all pairs in the entries."""
        return self.read + self.further

    def drop(self, kind: str, where: Location) -> None:
        """Counts a dropped pair, and records the first locations of each kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        places = self.examples.setdefault(kind, [])
        if len(places) < EXAMPLES:
            places.append(str(where))

    def note(self, line: str) -> None:
        """Records how an ambiguous file was interpreted."""
        if line not in self.notes:
            self.notes.append(line)

    def lines(self) -> list[str]:
        """Returns the report as text, with a line for each reason for dropping pairs."""
        more = f" ({self.pairs:,} with plural forms and lines of texts)" if self.further else ""
        lines = [f"{self.read:,} {self.unit} read{more}, {self.kept:,} kept"]
        for kind, count in self.counts.items():
            places = ", ".join(self.examples[kind]) + (", ..." if count > len(self.examples[kind]) else "")
            lines.append(f"{count:,} left out: {REASONS.get(kind, kind)} ({places})")
        return [*lines, *self.notes]


def require_kept(report: Report, files: Sequence[Path]) -> None:
    """Raises an error if a corpus has no usable pairs."""
    if not report.kept:
        reasons = "; ".join(report.lines()[1:]) if report.read else "the files are empty"
        raise DataError(f"no usable {report.unit} in {' and '.join(map(str, files))}: {reasons}")
