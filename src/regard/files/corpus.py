"""Streams the pairs of a corpus: reads them from files, cleans them, and splits them into train and dev set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from heapq import heappush, heappushpop
from itertools import chain, pairwise
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_files import expand_paths, is_reversed
from regard.files.corpus_report import EXAMPLES, Report
from regard.files.formats import format_by_suffix as files, multilingual_texts
from regard.settings import DataSettings
from regard.tokens.clean_text import CONTROL, tidy
from regard.tokens.text_pairs import Location, Pair


def read_pairs(names: Sequence[Path], data: DataSettings, report: Report, *, whole: bool = False) -> Iterator[Pair]:
    """Yields the pairs of files that contain both languages, and of two plain files with one language each.

    Files may be gzipped. A folder stands for all files in it that contain both languages, and a pattern for all files
    that match it. Texts of several lines are split into pairs of lines unless `whole` is true.
    """
    pairs = _read_files(names, data, report)
    return pairs if whole else _in_lines(pairs, report)


def _read_files(names: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    paths = expand_paths(names, data)
    if data.directions:
        return multilingual_texts.read(paths, data, report)
    paired = [path for path in paths if files.suffix(path) in files.PAIRED]
    alone = [path for path in paths if path not in paired]
    if not paths or len(alone) not in (0, 2):
        several = ",".join(map(str, multilingual_texts.possible_directions(paths)[:12])) if paths[2:] else ""
        hint = f"; or train several directions at once: regard train --directions {several}" if several else ""
        missing = "".join(f"{path} does not exist; " for path in paths if not path.exists())
        raise DataError(
            f"cannot read pairs from {' and '.join(map(str, names)) or 'no file'}: {missing}pass two plain text files, "
            "in which line n of one translates line n of the other, or files with both languages in each: "
            f"{', '.join(files.PAIRED)} (all may end in .gz){hint}"
        )
    readers = (_read_file(path, data, report) for path in paired)  # opens each file only when it is read
    last = (files.read_two(*pair, data, report) for pair in pairwise(alone))
    return chain.from_iterable(chain(readers, last))


def _read_file(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    pairs = files.read(path, data, report)
    if not is_reversed(path, data):
        return pairs
    return (replace(pair, source=pair.target, target=pair.source) for pair in pairs)


def _in_lines(pairs: Iterable[Pair], report: Report) -> Iterator[Pair]:
    """Splits texts into pairs of lines if both sides have equally many lines, else joins the lines of each side."""
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


def clean(pairs: Iterable[Pair], data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the usable pairs with normalized white space, and counts the others in the report."""
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
            is_same = source == pair.source and target == pair.target
            yield pair if is_same else replace(pair, source=source, target=target)


@dataclass
class Leak:
    """Counts the pairs of a held-out set whose sources are also in the training data."""

    pairs: int = 0
    leaked: int = 0
    examples: list[str] = field(default_factory=list)


def leaks(train: Iterable[Pair], held_out: Mapping[str, Iterable[Pair]]) -> dict[str, Leak]:
    """Counts the pairs of each held-out set whose source is also in the training data, which is streamed."""
    results = {name: Leak() for name in held_out}
    by_source: dict[str, list[tuple[Leak, Location]]] = {}
    for name, pairs in held_out.items():
        for pair in pairs:
            results[name].pairs += 1
            by_source.setdefault(pair.source, []).append((results[name], pair.where))
    for pair in train:
        for leak, where in by_source.pop(pair.source, ()):
            leak.leaked += 1
            if len(leak.examples) < EXAMPLES:
                leak.examples.append(f"{where} is {pair.where}")
    return results


@dataclass(frozen=True)
class DevSplit:
    """The pairs that are held out as the dev set; all pairs with the same source are on the same side."""

    keys: frozenset[int]
    pairs: int

    def holds(self, source: str) -> bool:
        """Returns whether the pairs with this source belong to the dev set."""
        return _key(source) in self.keys


def split(sources: Iterable[str], dev_pairs: int | None, total: int) -> DevSplit:
    """Holds out about `dev_pairs` of `total` pairs, by default 2 %; the split depends only on the pairs.

    It holds out the sources with the smallest hashes, so that adding pairs to a corpus changes the split little.
    """
    return split_each((("", source) for source in sources), dev_pairs, {"": total})


def split_each(sources: Iterable[tuple[str, str]], dev_pairs: int | None, totals: Mapping[str, int]) -> DevSplit:
    """Splits several named parts, passed as (part, source); a source held out in one part is held out in all."""
    wanted = {name: dev_size(dev_pairs, total) for name, total in totals.items()}
    counts = _smallest_keys(sources, {name: 2 * count + 16 for name, count in wanted.items()})
    splits = [_choose(counts[name], wanted[name]) for name in totals]
    return DevSplit(frozenset().union(*(each.keys for each in splits)), sum(each.pairs for each in splits))


def dev_size(dev_pairs: int | None, total: int) -> int:
    """Returns the number of pairs to hold out: `dev_pairs`, or by default 2 % within limits."""
    if dev_pairs is None:
        dev_pairs = min(max(50, total // 50), 1000, total // 10)
    return max(1, min(dev_pairs, total - 1))


def _choose(counts: dict[int, int], wanted: int) -> DevSplit:
    """Chooses the smallest keys that together have at most the wanted number of pairs."""
    if len(counts) < 2:
        raise DataError(
            "cannot hold out a dev set: the corpus has fewer than two different sources; pass a dev set with --dev"
        )
    keys, pairs = set(), 0
    for key in sorted(counts):
        if pairs + counts[key] <= wanted:
            keys.add(key)
            pairs += counts[key]
    if not keys:  # every source has too many pairs: take the one with the fewest
        key = min(counts, key=lambda key: (counts[key], key))
        keys, pairs = {key}, counts[key]
    return DevSplit(frozenset(keys), pairs)


def _smallest_keys(sources: Iterable[tuple[str, str]], limits: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Returns the smallest keys of each part, up to its limit, and the number of pairs with each key."""
    results: dict[str, dict[int, int]] = {name: {} for name in limits}
    heaps: dict[str, list[int]] = {name: [] for name in limits}  # negated keys, so that the largest key is on top
    for name, source in sources:
        key, counts, negated = _key(source), results[name], heaps[name]
        if key in counts:
            counts[key] += 1
        elif len(negated) < limits[name]:
            heappush(negated, -key)
            counts[key] = 1
        elif key < -negated[0]:
            del counts[-heappushpop(negated, -key)]
            counts[key] = 1
    return results


def _key(source: str) -> int:
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big")
