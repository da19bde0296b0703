"""A corpus looked at twice, pair by pair: what is in it as a whole, then what is wrong with each pair of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.files.character_arrays import Characters
from regard.files.check_thresholds import CheckSettings
from regard.files.corpus import read_pairs
from regard.files.language_classifier import Identifier, find_foreign
from regard.files.pair_checks import CHECKS, CHUNK, Check, CheckResult, Severity, find_faults
from regard.files.repeated_pairs import FlagArray, Repeats
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy
from regard.tokens.corpus_report import EXAMPLES, REASONS, Report
from regard.tokens.text_pairs import Pair

SAMPLE = 20_000  # pairs of a direction that its languages are learnt from, at least, where there are as many
SHORT = 15  # characters by which one side may be longer than the other before the ratio matters


@dataclass(frozen=True)
class Example:
    """A pair in which something was found."""

    where: str
    source: str = ""
    target: str = ""


@dataclass
class Finding:
    """How often a check found something, and the first examples."""

    check: Check
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class PairChunk:
    """Some pairs of one direction that stand close together, as a model would see them."""

    direction: str
    numbers: Sequence[int]  # of the pairs in the corpus, from 0
    pairs: Sequence[Pair]
    longest: int

    def __post_init__(self) -> None:
        self.sources = [tidy(pair.source) for pair in self.pairs]
        self.targets = [tidy(pair.target) for pair in self.pairs]
        self.dropped = np.zeros(len(self.pairs), bool)

    @property
    def keys(self) -> Sequence[object]:
        """What tells sources apart."""
        return [(source, self.direction) for source in self.sources] if self.direction else self.sources

    def characters(self) -> tuple[Characters, Characters]:
        """The texts of both sides; of those that are too long, the beginnings."""
        left, right = ([text[: self.longest] for text in side] for side in (self.sources, self.targets))
        return Characters(left), Characters(right)

    def kept(self) -> Iterator[tuple[str, str]]:
        """The pairs that pass."""
        texts = zip(self.sources, self.targets, self.dropped.tolist(), strict=True)
        return ((source, target) for source, target, dropped in texts if not dropped)


class _DirectionStatistics:
    """What is known of a direction, from pairs that stand evenly in the whole corpus."""

    def __init__(self) -> None:
        self.sources, self.targets = list[str](), list[str]()
        self.seen, self.stride = 0, 1

    def add(self, part: PairChunk) -> None:
        rows = slice(-self.seen % self.stride, None, self.stride)
        self.sources += [text[: part.longest] for text in part.sources[rows]]
        self.targets += [text[: part.longest] for text in part.targets[rows]]
        self.seen += len(part.pairs)
        if len(self.sources) > 2 * SAMPLE:
            self.stride *= 2
            self.sources, self.targets = self.sources[::2], self.targets[::2]

    def finish(self) -> None:
        """Learns the languages, and how long a target usually is for its source; the pairs have served."""
        self.identifier = Identifier(Characters(self.sources), Characters(self.targets))
        pairs = zip(self.sources, self.targets, strict=True)
        self.ratio = float(np.median([len(target) / len(source) for source, target in pairs if source and target] or 1))
        self.sources, self.targets = [], []


class Examination:
    """Finds what is wrong with a corpus: `survey` first, then `judge`; `drop` are the checks that drop pairs."""

    def __init__(self, files: Sequence[Path], data: DataSettings, check: CheckSettings, drop: Iterable[str]) -> None:
        self.files, self.check, self.dropping = files, check, frozenset(drop)
        self.data = replace(data, undecodable="drop")
        self.report = Report()
        self.findings = {name: Finding(check) for name, check in CHECKS.items()}
        self.repeats, self.flags = Repeats(), dict[str, FlagArray]()
        self.directions: dict[str, _DirectionStatistics] = {}
        self.tested: set[object] = set()  # sources of the test set
        self.leaked: set[object] = set()
        self.kept = 0

    def survey(self, test: Sequence[Path] = ()) -> Iterator[int]:
        """Goes through the corpus, telling how many pairs were read, and learns what it is like."""
        for part in self._parts(test) if test else ():
            self.tested.update(part.keys)
        for part in self._parts(self.files):
            self.repeats.add(part.keys, part.targets)
            self.directions.setdefault(part.direction, _DirectionStatistics()).add(part)
            yield len(self.repeats)
        if not self.report.read:
            raise DataError(f"no pairs in {' and '.join(map(str, self.files))}")
        for direction in self.directions.values():
            direction.finish()
        duplicates = self.repeats.duplicates()
        self.flags = {"duplicate": duplicates, "targets": self.repeats.scattered(self.check.targets, duplicates)}
        if test:
            self.flags["leaked"] = self.repeats.known(self.tested)
        self.total, self.repeats = len(self.repeats), Repeats()

    def judge(self) -> Iterator[PairChunk]:
        """Goes through it again: the pairs, with a note of which are dropped; counts what it finds."""
        seen = 0
        for part in self._parts(self.files):
            seen += len(part.pairs)
            if seen > self.total:
                break
            for name, rows in self._faults(part):
                self._count(name, rows, part)
            self.kept += len(part.pairs) - int(part.dropped.sum())
            yield part
        if seen != self.total:
            raise DataError(f"{' and '.join(map(str, self.files))}: changed while being read: check again")
        for kind, count in self.report.counts.items():
            check = Check(REASONS.get(kind, kind), "error")
            finding = self.findings.setdefault(NAMES.get(kind, kind), Finding(check))
            finding.count += count
            finding.examples += map(Example, self.report.examples[kind])

    def severity(self, name: str) -> Severity:
        """Whether pairs in which a check finds something are dropped; what readers leave out always is."""
        return "error" if name in self.dropping or name not in CHECKS else "warning"

    def notes(self) -> list[str]:
        """How files were taken that do not say it, and what could not be looked for."""
        unable = [name for name, direction in self.directions.items() if not direction.identifier.able]
        of = f" of {', '.join(unable)}" if any(unable) else ""
        told = [f"The languages{of} were not checked: there is too little text to learn them from."] if unable else []
        return [*self.report.notes, *told]

    def _parts(self, files: Sequence[Path]) -> Iterator[PairChunk]:
        """The pairs of some files, chunk by chunk, each direction apart."""
        self.report = Report()
        pairs, seen = read_pairs(files, self.data, self.report), 0
        while chunk := list(islice(pairs, CHUNK)):
            places = range(seen, seen + len(chunk))
            for direction in dict.fromkeys(pair.direction for pair in chunk):
                mine = [row for row, pair in enumerate(chunk) if pair.direction == direction]
                rows = [chunk[row] for row in mine]
                yield PairChunk(direction, [places[row] for row in mine], rows, self.data.max_characters)
            seen += len(chunk)

    def _faults(self, part: PairChunk) -> Iterator[CheckResult]:
        """Every fault of some pairs."""
        left, right = part.characters()
        yield from find_faults(part.sources, part.targets, left, right)
        lengths = [np.fromiter(map(len, texts), np.int64) for texts in (part.sources, part.targets)]
        there = (lengths[0] > 0) & (lengths[1] > 0)
        yield "long", np.flatnonzero(np.maximum(*lengths) > self.data.max_characters).tolist()
        yield from ((name, np.flatnonzero(flags[part.numbers] & there).tolist()) for name, flags in self.flags.items())
        about = self.directions[part.direction]
        ratio = (lengths[1] + SHORT) / (lengths[0] * about.ratio + SHORT)
        yield "ratio", np.flatnonzero(there & (np.maximum(ratio, 1 / ratio) > self.check.ratio)).tolist()
        surely = about.identifier, self.check.confidence
        sources = find_foreign(part.sources, part.targets, left, -1, *surely)
        targets = find_foreign(part.targets, part.sources, right, 1, *surely)
        yield "swapped", sorted(sources & targets)
        yield "language", sorted(sources ^ targets)

    def _count(self, name: str, rows: Sequence[int], part: PairChunk) -> None:
        finding = self.findings[name]
        finding.count += len(rows)
        for row in rows[: EXAMPLES - len(finding.examples)]:
            finding.examples.append(Example(str(part.pairs[row].where), part.sources[row], part.targets[row]))
        if name in self.dropping:
            part.dropped[list(rows)] = True
        if name == "leaked":
            self.leaked.update(part.keys[row] for row in rows)


NAMES = {"no direction": "direction"}
"""What readers leave out under another name than that of its check."""
