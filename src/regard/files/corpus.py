"""Pairs as a stream: read from files, and split into train and dev."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heappush, heappushpop
from itertools import chain, pairwise
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_files import expand_paths, is_reversed
from regard.files.formats import format_by_suffix as files, multilingual_texts as aligned
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Pair


def read_pairs(names: Sequence[Path], data: DataSettings, report: Report, *, whole: bool = False) -> Iterator[Pair]:
    """The pairs of files that have both languages in them, and of two that have one each; `clean` comes next.

    Each may be gzipped. A folder stands for the files in it that have both languages, a pattern for those that fit it.
    Texts of several lines give pairs of lines, unless they are wanted `whole`.
    """
    pairs = _read_files(names, data, report)
    return pairs if whole else in_lines(pairs, report)


def _read_files(names: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    paths = expand_paths(names, data)
    if data.directions:
        return aligned.read(paths, data, report)
    both = [path for path in paths if files.suffix(path) in files.PAIRED]
    one_each = [path for path in paths if path not in both]
    if not paths or len(one_each) not in (0, 2):
        several = ",".join(map(str, aligned.possible_directions(paths)[:12]))
        raise DataError(
            f"cannot read pairs from {' and '.join(map(str, names)) or 'no file'}: give two plain text files, of which "
            "line n of the one translates line n of the other, or files with both languages in each: "
            f"{', '.join(files.PAIRED)} (all may end in .gz)"
            + (
                f"; or learn several directions at once: regard train --directions {several}"
                if several and paths[2:]
                else ""
            )
        )
    readers = (_read(path, data, report) for path in both)  # each file is opened when its turn comes
    last = (files.read_two(*pair, data, report) for pair in pairwise(one_each))
    return chain.from_iterable(chain(readers, last))


def _read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    pairs = files.read(path, data, report)
    return (
        (replace(pair, source=pair.target, target=pair.source) for pair in pairs) if is_reversed(path, data) else pairs
    )


def in_lines(pairs: Iterable[Pair], report: Report) -> Iterator[Pair]:
    """A pair for each line of a text whose translation has as many; else its lines are joined, as a model has one."""
    for pair in pairs:
        if "\n" not in pair.source and "\n" not in pair.target:
            yield pair
            continue
        sources, targets = (
            [line for line in map(str.strip, text.split("\n")) if line] for text in (pair.source, pair.target)
        )
        if len(sources) != len(targets) or not sources:
            sources, targets = [" ".join(sources)], [" ".join(targets)]
        report.further += len(sources) - 1
        for source, target in zip(sources, targets, strict=True):
            yield replace(pair, source=source, target=target)


@dataclass(frozen=True)
class DevSplit:
    """Which pairs are held out as dev set; pairs with equal sources fall on the same side."""

    keys: frozenset[int]
    pairs: int

    def holds(self, source: str) -> bool:
        """Whether the pairs with this source belong to the dev set."""
        return _key(source) in self.keys


def split(sources: Iterable[str], dev_pairs: int | None, total: int) -> DevSplit:
    """About `dev_pairs` of the `total` pairs, by default a fiftieth, held out; the same pairs give the same split.

    Taken are the sources with the smallest hashes, so that adding pairs to a corpus moves few others.
    """
    return split_each((("", source) for source in sources), dev_pairs, {"": total})


def split_each(sources: Iterable[tuple[str, str]], dev_pairs: int | None, totals: Mapping[str, int]) -> DevSplit:
    """The same for each of some parts, whose names come with the sources; what is held out of one is out of all."""
    wanted = {name: dev_size(dev_pairs, total) for name, total in totals.items()}
    counts = _smallest(sources, {name: 2 * count + 16 for name, count in wanted.items()})
    splits = [_choose(counts[name], wanted[name]) for name in totals]
    return DevSplit(frozenset().union(*(each.keys for each in splits)), sum(each.pairs for each in splits))


def dev_size(dev_pairs: int | None, total: int) -> int:
    """How many of `total` pairs are held out: as many as are asked for, or by default a fiftieth, within limits."""
    if dev_pairs is None:
        dev_pairs = min(max(50, total // 50), 1000, total // 10)
    return max(1, min(dev_pairs, total - 1))


def _choose(counts: dict[int, int], wanted: int) -> DevSplit:
    """About so many pairs, of those that have the smallest keys."""
    if len(counts) < 2:
        raise DataError("a dev set cannot be split off: the corpus has no two different sources; give a dev set")
    keys, held = set(), 0
    for key in sorted(counts):
        if held + counts[key] <= wanted:
            keys.add(key)
            held += counts[key]
    if not keys:  # every source stands in more pairs than are wanted: take the one in the fewest
        key = min(counts, key=lambda key: (counts[key], key))
        keys, held = {key}, counts[key]
    return DevSplit(frozenset(keys), held)


def _smallest(sources: Iterable[tuple[str, str]], limits: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Of each part, the smallest keys, at most its limit, and how many pairs have each."""
    found: dict[str, dict[int, int]] = {name: {} for name in limits}
    heaps: dict[str, list[int]] = {name: [] for name in limits}  # negated, with the largest key on top
    for name, source in sources:
        key, counts, negated = _key(source), found[name], heaps[name]
        if key in counts:
            counts[key] += 1
        elif len(negated) < limits[name]:
            heappush(negated, -key)
            counts[key] = 1
        elif key < -negated[0]:
            del counts[-heappushpop(negated, -key)]
            counts[key] = 1
    return found


def _key(source: str) -> int:
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big")
