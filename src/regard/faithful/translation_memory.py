"""A translation memory, which finds earlier translations of the same or similar texts.

Scores range from 0 to 100. The same text has a score of 100. A text that differs only in numbers and placeholders,
which are replaced in its translation, has a score of 99. Lower scores are the Levenshtein similarity of the characters.
Candidates share character 4-grams with the text; an index looks up the rare 4-grams first.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from regard.decoding.translation_results import MemoryMatch
from regard.errors import DataError
from regard.files.formats import json_texts
from regard.model_folder import LIMITS, MEMORY
from regard.model_manifest import require_unchanged
from regard.tokens import protected_pieces as protect
from regard.tokens.clean_text import SURROGATE, tidy
from regard.tokens.language_directions import Direction
from regard.tokens.text_pairs import Location, Pair
from regard.untrusted_files import require_regular

SAME, EXCHANGED, ALIKE = 100, 99, 75
"""Scores of the same text and of a text with other numbers or placeholders, and the minimum score of a match."""

KEPT = (".po", ".mo", ".tmx", ".xlf", ".xliff")
"""Suffixes of translators' files; a model trained on such files includes a translation memory by default."""

GRAM = 4
MAX_ENTRIES_READ = 20_000
"""Maximum number of index entries that are read for a text, beginning with the rarest 4-grams."""

CANDIDATES = 64
"""Maximum number of candidates whose similarity is computed."""

LARGEST = LIMITS[MEMORY]
"""Bytes of the memory in a model folder, before and after it is unpacked."""
MOST_ENTRIES, LONGEST_LINE = 2_000_000, 1_000_000
CHUNK = 1 << 20

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class TranslationMemory:
    """A translation memory that stores the most frequent translation of each text."""

    def __init__(self, pairs: Iterable[Pair | tuple[str, str]]) -> None:
        self.targets: dict[str, str] = {}
        rivals: dict[str, Counter[str]] = {}  # counts for sources with several translations
        for pair in pairs:
            source, target = map(tidy, (pair.source, pair.target) if isinstance(pair, Pair) else pair)
            if not source or not target:
                continue
            first = self.targets.setdefault(source, target)
            if source in rivals or first != target:
                rivals.setdefault(source, Counter({first: 1}))[target] += 1
        for source, counts in rivals.items():
            self.targets[source] = counts.most_common(1)[0][0]

    def __len__(self) -> int:
        return len(self.targets)

    def exact(self, text: str) -> MemoryMatch | None:
        """Returns the match for the same text, ignoring white space around it."""
        source = tidy(text)
        target = self.targets.get(source)
        return None if target is None else MemoryMatch(SAME, source, target)

    def find(self, text: str, *, threshold: int = ALIKE, most: int = 3) -> list[MemoryMatch]:
        """Returns the matches with the most similar texts, best first."""
        query = tidy(text)
        if (same := self.exact(query)) is not None:
            return [same]
        if not query or not self.targets:
            return []
        matches: list[MemoryMatch] = []
        choices = [self.sources[number] for number in self.index.candidates(query)]
        cutoff = min(threshold, MIN_SIMILARITY) / 100
        near = process.extract(
            query, choices, scorer=Levenshtein.normalized_similarity, score_cutoff=cutoff, limit=CANDIDATES
        )
        for source, share, _ in near:
            target = substitute_variables(source, self.targets[source], query)
            if target is not None:
                matches.append(MemoryMatch(EXCHANGED, source, target))
            elif (score := min(EXCHANGED - 1, int(100 * share))) >= threshold:
                matches.append(MemoryMatch(score, source, self.targets[source]))
        return sorted(matches, key=lambda match: -match.score)[:most]

    @cached_property
    def sources(self) -> list[str]:
        return list(self.targets)

    @cached_property
    def index(self) -> Index:
        """The index of 4-grams, built on first use."""
        return Index(self.sources)


MIN_SIMILARITY = 50
"""The minimum similarity in percent of texts that differ only in numbers and placeholders."""


def substitute_variables(source: str, target: str, query: str) -> str | None:
    """Replaces the numbers and placeholders of `source` in `target` by those of `query`; returns None if unsafe.

    It is safe if `source` and `query` have the same words, `target` has each number or placeholder as often as
    `source`, and equal ones are replaced by equal ones.
    """
    words, old = split_variables(source)
    others, new = split_variables(query)
    if not old or words != others:
        return None
    becomes: dict[str, str] = {}
    for before, after in zip(old, new, strict=True):
        if becomes.setdefault(before, after) != after or before[0].isdigit() != after[0].isdigit():
            return None
    words, places = split_variables(target)
    if Counter(places) != Counter(old):
        return None
    return words[0] + "".join(becomes[place] + word for place, word in zip(places, words[1:], strict=True))


def split_variables(text: str) -> tuple[list[str], list[str]]:
    """Splits a text into words, and the protected pieces and numbers between them."""
    words, variables, place = [], [], 0
    pieces = [(piece.start, piece.end) for piece in protect.find(text)]
    taken = {position for start, end in pieces for position in range(start, end)}
    numbers = [found.span() for found in NUMBER.finditer(text) if taken.isdisjoint(range(*found.span()))]
    for start, end in sorted([*pieces, *numbers]):
        words.append(text[place:start])
        variables.append(text[start:end])
        place = end
    return [*words, text[place:]], variables


class Index:
    """An index of texts by their 4-grams: a sorted array of 4-grams, and the texts that contain each of them."""

    def __init__(self, texts: Sequence[str]) -> None:
        grams, self.counts = ngrams(texts)
        owners = np.repeat(np.arange(len(texts), dtype=np.int32), self.counts)
        order = np.argsort(grams, kind="stable")
        grams, self.owners = grams[order], owners[order]
        self.grams, self.starts = np.unique(grams, return_index=True)
        self.starts = np.append(self.starts, len(grams))

    def candidates(self, text: str) -> list[int]:
        """Returns the indices of the texts that share the most 4-grams with a text."""
        sought = np.unique(ngrams([text])[0])
        places = np.searchsorted(self.grams, sought)
        places = places[(places < len(self.grams)) & (self.grams[np.minimum(places, len(self.grams) - 1)] == sought)]
        begins, ends = self.starts[places], self.starts[places + 1]
        order = np.argsort(ends - begins, kind="stable")
        slices: list[NDArray[np.int32]] = []
        total = 0
        for begin, end in zip(begins[order].tolist(), ends[order].tolist(), strict=True):
            if slices and total + end - begin > MAX_ENTRIES_READ:
                break
            slices.append(self.owners[begin:end])
            total += end - begin
        if not slices:
            return []
        numbers, shared = np.unique(np.concatenate(slices), return_counts=True)
        alike = shared / (self.counts[numbers] + len(sought))
        best = np.argsort(-alike, kind="stable")[:CANDIDATES]
        return [int(number) for number in numbers[best]]


def ngrams(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Returns the hashed 4-grams of all texts, one text after the other, and the number of 4-grams of each text.

    Letters are lowercased and digits replaced by 0, so that "Page 1" and "page 2" are equal.
    """
    made = [f"\x02{text}\x02".ljust(GRAM, "\x02") for text in texts]
    data = np.frombuffer("".join(made).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    data = np.where((data >= ord("A")) & (data <= ord("Z")), data + 32, data)
    data = np.where((data >= ord("0")) & (data <= ord("9")), ord("0"), data)
    lengths = np.array([len(text) for text in made], dtype=np.int64)
    inside = np.ones(len(data), dtype=bool)
    found = data
    for shift in range(1, GRAM):
        found = found * np.uint64(1_000_003) + np.roll(data, -shift)
        inside[np.cumsum(lengths) - shift] = False  # such a 4-gram would reach into the next text
    return found[inside], lengths - (GRAM - 1)


def write(path: Path, pairs: Iterable[Pair]) -> int:
    """Writes pairs as gzipped JSON lines, as many as `read` accepts, and returns the number of those left out."""
    size = entries = left_out = 0
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        for pair in pairs:
            record = {"source": pair.source, "target": pair.target}
            if pair.direction:
                record["direction"] = pair.direction
            line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
            if len(line) > LONGEST_LINE or entries >= MOST_ENTRIES or size + len(line) > LARGEST:
                left_out += 1
                continue
            file.write(line)
            size, entries = size + len(line), entries + 1
    return left_out


def open_recorded(folder: Path, direction: Direction | None = None) -> TranslationMemory:
    """Opens the translation memory of a model folder, which may come from a stranger."""
    require_regular(folder / MEMORY, folder, LARGEST)  # before it is hashed
    require_unchanged(folder, [MEMORY])
    return TranslationMemory(read(folder / MEMORY, direction))


def read(path: Path, direction: Direction | None = None) -> Iterator[tuple[str, str]]:
    """Yields the pairs in a file written by `write`, only those of `direction` if it is set.

    Raises DataError if the file exceeds the limits.
    """
    _require_limits(path)
    for number, line in enumerate(_lines(path), 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8 ({error.reason})", path, number) from None
        record = json_texts.record(text, Location(str(path), number))
        source, target = record.get("source"), record.get("target")
        if not isinstance(source, str) or not isinstance(target, str):
            raise DataError("source and target must be texts", path, number)
        if SURROGATE.search(source + target):
            raise DataError("a lone surrogate (such as \\ud800) is not a character", path, number)
        if direction is None or str(record.get("direction", direction)).endswith(str(direction)):
            yield source, target  # the direction -de, without a source, matches en-de


def _require_limits(path: Path) -> None:
    """Raises DataError if a file is too large when decompressed; keeps nothing of it in memory."""
    size = entries = since = 0  # since: number of bytes after the last line end
    for chunk in _unpack(path):
        size, entries = size + len(chunk), entries + chunk.count(b"\n")
        end = chunk.rfind(b"\n")
        since = since + len(chunk) if end < 0 else len(chunk) - end - 1
        for name, number, most in (
            ("bytes when it is unpacked", size, LARGEST),
            ("entries", entries, MOST_ENTRIES),
            ("bytes in a line", since, LONGEST_LINE),
        ):
            if number > most:
                raise DataError(f"has more than {most:,} {name}: delete it, or get a smaller one", path)


def _lines(path: Path) -> Iterator[bytes]:
    rest = b""
    for chunk in _unpack(path):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _unpack(path: Path) -> Iterator[bytes]:
    """Yields the content of a gzip file in chunks of at most 1 MiB, however much it expands."""
    require_regular(path, most=LARGEST)
    inflate = zlib.decompressobj(wbits=31)
    try:
        with path.open("rb") as file:
            while not inflate.eof and (packed := inflate.unconsumed_tail or file.read(CHUNK)):
                yield inflate.decompress(packed, CHUNK)
            if not inflate.eof or inflate.unused_data or file.read(1):
                raise DataError("damaged: it is cut off, or other data follows it", path)
    except (OSError, zlib.error) as error:
        raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})", path) from None
