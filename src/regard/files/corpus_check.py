"""Checks a corpus in two passes: the first collects statistics of the corpus, the second checks each pair."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files.character_arrays import Characters
from regard.files.check_thresholds import CheckSettings
from regard.files.corpus import read_pairs
from regard.files.corpus_report import EXAMPLES, REASONS, Report
from regard.files.language_classifier import Identifier, find_foreign
from regard.files.pair_checks import CHECKS, CHUNK, Check, CheckResult, Severity, find_faults
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy
from regard.tokens.text_pairs import Pair

FlagArray = NDArray[np.bool_]
HashArray = NDArray[np.int64]
SAMPLE = 20_000  # pairs per direction from which its two languages are learned
SHORT = 15  # characters added to both lengths, so that the ratio matters less for short texts
HASHES = 1 << 18  # number of hashes that are compared at once, to limit memory
NAMES = {"no direction": "direction"}
"""Names of checks that differ from the reasons in `Report`."""


@dataclass(frozen=True)
class Example:
    """A pair that has a fault, and its location."""

    where: str
    source: str = ""
    target: str = ""


@dataclass
class Finding:
    """The number of pairs with one kind of fault, and the first of them as examples."""

    check: Check
    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class PairChunk:
    """Consecutive pairs of one direction, with white space normalized as in training."""

    direction: str
    numbers: Sequence[int]  # indices of the pairs in the corpus
    pairs: Sequence[Pair]
    longest: int

    def __post_init__(self) -> None:
        self.sources = [tidy(pair.source) for pair in self.pairs]
        self.targets = [tidy(pair.target) for pair in self.pairs]
        self.dropped = np.zeros(len(self.pairs), bool)

    @property
    def keys(self) -> Sequence[object]:
        """Hashable keys of the sources, which differ between directions."""
        return [(source, self.direction) for source in self.sources] if self.direction else self.sources

    def characters(self) -> tuple[Characters, Characters]:
        """Returns the characters of both sides, without the ends of texts that are too long."""
        left, right = ([text[: self.longest] for text in side] for side in (self.sources, self.targets))
        return Characters(left), Characters(right)

    def kept(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs that are not dropped."""
        texts = zip(self.sources, self.targets, self.dropped.tolist(), strict=True)
        return ((source, target) for source, target, is_dropped in texts if not is_dropped)


class _DirectionStatistics:
    """Learns the two languages and the length ratio of a direction from a sample of the whole corpus."""

    def __init__(self) -> None:
        self.sources, self.targets = list[str](), list[str]()
        self.count, self.stride = 0, 1

    def add(self, chunk: PairChunk) -> None:
        rows = slice(-self.count % self.stride, None, self.stride)
        self.sources += [text[: chunk.longest] for text in chunk.sources[rows]]
        self.targets += [text[: chunk.longest] for text in chunk.targets[rows]]
        self.count += len(chunk.pairs)
        if len(self.sources) > 2 * SAMPLE:
            self.stride *= 2
            self.sources, self.targets = self.sources[::2], self.targets[::2]

    def finish(self) -> None:
        """Learns from the sample, and then frees its memory."""
        self.identifier = Identifier(Characters(self.sources), Characters(self.targets))
        pairs = zip(self.sources, self.targets, strict=True)
        self.ratio = float(np.median([len(target) / len(source) for source, target in pairs if source and target] or 1))
        self.sources, self.targets = [], []


class Repeats:
    """Remembers pairs by 64-bit hashes, which collide in one of 370,000 corpora of ten million pairs."""

    def __init__(self) -> None:
        self._sources, self._pairs = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, sources: Sequence[object], targets: Sequence[str]) -> None:
        """Adds the next pairs; sources may be any hashable keys."""
        self._sources.extend(map(hash, sources))
        self._pairs.extend(map(hash, zip(sources, targets, strict=True)))

    def duplicates(self) -> FlagArray:
        """Returns for each pair whether it repeats an earlier one."""
        hashes = np.frombuffer(self._pairs, np.int64)
        order = np.argsort(hashes, kind="stable")
        flags = np.zeros(len(hashes), bool)
        flags[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
        return flags

    def scattered(self, most: int, duplicates: FlagArray) -> FlagArray:
        """Returns for each pair whether its source has more than `most` different targets."""
        sources = np.frombuffer(self._sources, np.int64)
        different = np.sort(sources[~duplicates])
        return _contained(sources, different[most:][different[most:] == different[: len(different[most:])]])

    def known(self, sources: Iterable[object]) -> FlagArray:
        """Returns for each pair whether its source is among `sources`."""
        return _contained(np.frombuffer(self._sources, np.int64), np.sort(np.fromiter(map(hash, sources), np.int64)))


def _contained(hashes: HashArray, wanted: HashArray) -> FlagArray:
    """Returns for each hash whether it is in the sorted array `wanted`."""
    flags = np.zeros(len(hashes), bool)
    for start in range(0, len(hashes) if len(wanted) else 0, HASHES):
        part = hashes[start : start + HASHES]
        places = np.minimum(np.searchsorted(wanted, part), len(wanted) - 1)
        flags[start : start + HASHES] = wanted[places] == part
    return flags


class Examination:
    """Finds the faults of a corpus: call `survey` first, then `judge`. The checks in `drop` drop pairs."""

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
        """Reads the corpus and collects its statistics; yields the number of pairs read so far."""
        for chunk in self._chunks(test) if test else ():
            self.tested.update(chunk.keys)
        for chunk in self._chunks(self.files):
            self.repeats.add(chunk.keys, chunk.targets)
            self.directions.setdefault(chunk.direction, _DirectionStatistics()).add(chunk)
            yield len(self.repeats)
        if not self.report.read:
            raise DataError(f"there are no pairs in {' and '.join(map(str, self.files))}")
        for direction in self.directions.values():
            direction.finish()
        duplicates = self.repeats.duplicates()
        self.flags = {"duplicate": duplicates, "targets": self.repeats.scattered(self.check.targets, duplicates)}
        if test:
            self.flags["leaked"] = self.repeats.known(self.tested)
        self.total, self.repeats = len(self.repeats), Repeats()

    def judge(self) -> Iterator[PairChunk]:
        """Reads the corpus again and counts its faults; yields the pairs in chunks, with those to drop marked."""
        count = 0
        for chunk in self._chunks(self.files):
            count += len(chunk.pairs)
            if count > self.total:
                break
            for name, rows in self._faults(chunk):
                self._count(name, rows, chunk)
            self.kept += len(chunk.pairs) - int(chunk.dropped.sum())
            yield chunk
        if count != self.total:
            raise DataError(f"{' and '.join(map(str, self.files))}: changed during the check: run it again")
        for kind, count in self.report.counts.items():
            check = Check(REASONS.get(kind, kind), "error")
            finding = self.findings.setdefault(NAMES.get(kind, kind), Finding(check))
            finding.count += count
            finding.examples += map(Example, self.report.examples[kind])

    def severity(self, name: str) -> Severity:
        """Returns "error" for checks that drop pairs, including those of pairs that readers skip."""
        return "error" if name in self.dropping or name not in CHECKS else "warning"

    def notes(self) -> list[str]:
        """Returns notes on how ambiguous files were interpreted and on checks that were not possible."""
        unable = [name for name, direction in self.directions.items() if not direction.identifier.is_able]
        names = f" of {', '.join(unable)}" if any(unable) else ""
        note = f"The languages{names} were not checked: there is too little text to learn them from."
        return [*self.report.notes, *[note] * bool(unable)]

    def _chunks(self, files: Sequence[Path]) -> Iterator[PairChunk]:
        """Yields the pairs of files in chunks, each with pairs of one direction."""
        self.report = Report()
        pairs, count = read_pairs(files, self.data, self.report), 0
        while chunk := list(islice(pairs, CHUNK)):
            for direction in dict.fromkeys(pair.direction for pair in chunk):
                rows = [row for row, pair in enumerate(chunk) if pair.direction == direction]
                numbers = [count + row for row in rows]
                yield PairChunk(direction, numbers, [chunk[row] for row in rows], self.data.max_characters)
            count += len(chunk)

    def _faults(self, chunk: PairChunk) -> Iterator[CheckResult]:
        left, right = chunk.characters()
        yield from find_faults(chunk.sources, chunk.targets, left, right)
        lengths = [np.fromiter(map(len, texts), np.int64) for texts in (chunk.sources, chunk.targets)]
        filled = (lengths[0] > 0) & (lengths[1] > 0)
        yield "long", np.flatnonzero(np.maximum(*lengths) > self.data.max_characters).tolist()
        yield from (
            (name, np.flatnonzero(flags[chunk.numbers] & filled).tolist()) for name, flags in self.flags.items()
        )
        direction = self.directions[chunk.direction]
        ratio = (lengths[1] + SHORT) / (lengths[0] * direction.ratio + SHORT)
        yield "ratio", np.flatnonzero(filled & (np.maximum(ratio, 1 / ratio) > self.check.ratio)).tolist()
        thresholds = direction.identifier, self.check.confidence
        sources = find_foreign(chunk.sources, chunk.targets, left, -1, *thresholds)
        targets = find_foreign(chunk.targets, chunk.sources, right, 1, *thresholds)
        yield "swapped", sorted(sources & targets)
        yield "language", sorted(sources ^ targets)

    def _count(self, name: str, rows: Sequence[int], chunk: PairChunk) -> None:
        finding = self.findings[name]
        finding.count += len(rows)
        for row in rows[: EXAMPLES - len(finding.examples)]:
            finding.examples.append(Example(str(chunk.pairs[row].where), chunk.sources[row], chunk.targets[row]))
        if name in self.dropping:
            chunk.dropped[list(rows)] = True
        if name == "leaked":
            self.leaked.update(chunk.keys[row] for row in rows)
