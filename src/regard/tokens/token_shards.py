"""Stores tokenized pairs in memory-mapped shards, so that large corpora need little memory.

about.json   index: type of the tokens; file, pairs, tokens and checksum of each shard
00000.bin    end of each source and target ([N, 2], uint32), then all tokens back to back; little-endian
00000.json   only until all shards are written: the shard's entry in about.json, and the key of its input

Folders of an earlier version, with all pairs in tokens.bin and lengths.npy, can still be read.
"""

from __future__ import annotations

import json
import mmap
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.atomic_files import write_atomically, write_text
from regard.errors import ModelError

ABOUT = "about.json"
PLACES = np.dtype("<u4")

Ids = Sequence[int]
Lengths = NDArray[np.int32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """The entry of a shard in the index."""

    file: str
    pairs: int
    tokens: int
    checksum: int  # CRC-32 of the file
    left_out: int = 0  # number of pairs left out because they have too many tokens


class Shards:
    """The tokenized pairs in a folder, which are accessed by number."""

    def __init__(self, folder: Path) -> None:
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            self.dtype = np.dtype(about["dtype"]).newbyteorder("<")
            self.earlier = "shards" not in about  # written by an earlier version
            self._parts = (
                [_earlier(folder, self.dtype)]
                if self.earlier
                else [_mapped(folder, Shard(**shard), self.dtype) for shard in about["shards"]]
            )
        except (OSError, ValueError, KeyError, EOFError, TypeError) as error:
            raise damaged(folder, str(error)) from None
        self._firsts = [0, *accumulate(len(places) // 2 for places, _ in self._parts)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        number = bisect_right(self._firsts, row) - 1
        ends, tokens = self._parts[number]
        last = 2 * (row - self._firsts[number]) + 1
        start, middle = int(ends[last - 2]) if last > 1 else 0, int(ends[last - 1])
        return tokens[start:middle], tokens[middle : int(ends[last])]

    def lengths_between(self, start: int, stop: int) -> Lengths:
        """Pairs start ... stop - 1 -> [N, 2] lengths of their sources and targets in tokens."""
        lengths = [np.empty((0, 2), np.int32)]
        first = bisect_right(self._firsts, start) - 1
        for number in range(first, len(self._parts)):
            before = self._firsts[number]
            if before >= stop:
                break
            places = self._parts[number][0]
            low, high = 2 * max(0, start - before), 2 * min(self._firsts[number + 1] - before, stop - before)
            start_of = int(places[low - 1]) if low else 0
            ends = places[low:high].astype(np.int64)
            lengths.append(np.diff(ends, prepend=start_of).astype(np.int32).reshape(-1, 2))
        return np.concatenate(lengths)

    @cached_property
    def lengths(self) -> Lengths:
        """The lengths [N, 2] of all pairs, for corpora whose lengths fit into memory."""
        return self.lengths_between(0, len(self))


WHOLE = 1 << 20
"""Maximum number of pairs whose lengths are held in memory and batched together."""


def _mapped(folder: Path, shard: Shard, dtype: np.dtype[Any]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Maps a shard into memory and checks it; returns the ends of its texts, and its tokens."""
    path = folder / shard.file
    data = open_whole(path, shard, dtype)
    if data is None:
        raise damaged(path, "its size or checksum is wrong")
    cut = 2 * shard.pairs * PLACES.itemsize
    places = np.frombuffer(data, PLACES, 2 * shard.pairs) if shard.pairs else np.empty(0, PLACES)
    tokens = np.frombuffer(data, dtype, shard.tokens, cut) if shard.tokens else np.empty(0, dtype)
    return places, tokens


def open_whole(path: Path, shard: Shard, dtype: np.dtype[Any]) -> bytes | mmap.mmap | None:
    """Maps a shard's file into memory; returns None if it is missing or damaged."""
    if not path.is_file() or path.stat().st_size != 2 * shard.pairs * PLACES.itemsize + shard.tokens * dtype.itemsize:
        return None
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    return data if checksum(path) == shard.checksum else None  # hashing `data` would count as this process's memory


def checksum(path: Path) -> int:
    result = 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            result = zlib.crc32(part, result)
    return result


def _earlier(folder: Path, dtype: np.dtype[Any]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    places = np.cumsum(np.load(folder / "lengths.npy").ravel(), dtype=np.int64)
    tokens = np.memmap(folder / "tokens.bin", dtype=dtype, mode="r")
    if not len(places) or len(tokens) != places[-1]:
        raise ValueError("tokens are missing")
    return places, np.asarray(tokens)


def damaged(path: Path, why: str) -> ModelError:
    return ModelError(f"{path}: damaged training data ({why}): train again with --overwrite")


def token_type(vocabulary: int) -> np.dtype[Any]:
    """Returns the smallest integer type that can hold all token ids of a vocabulary."""
    return np.dtype("<u2" if vocabulary <= 2**16 else "<u4")


def write_shard(path: Path, pairs: Iterable[tuple[Ids, Ids]], dtype: np.dtype[Any]) -> Shard:
    """Writes a shard atomically and returns its index entry."""
    data, count, tokens = pack_shard(pairs, dtype)
    write_atomically(path, lambda temporary: temporary.write_bytes(data))
    return Shard(path.name, count, tokens, zlib.crc32(data))


def pack_shard(pairs: Iterable[tuple[Ids, Ids]], dtype: np.dtype[Any]) -> tuple[bytes, int, int]:
    """Returns the bytes of a shard, its number of pairs and its number of tokens."""
    ends, tokens = array("I"), array("H" if dtype.itemsize == 2 else "I")
    for pair in pairs:
        for side in pair:
            tokens.extend(side)
            ends.append(len(tokens))
    data = np.array(ends, PLACES).tobytes() + np.array(tokens, dtype).tobytes()
    return data, len(ends) // 2, len(tokens)


def write_index(folder: Path, shards: Sequence[Shard], dtype: np.dtype[Any]) -> None:
    """Writes the index of the shards, and removes all other files in the folder."""
    about = {"dtype": dtype.name, "pairs": sum(each.pairs for each in shards), "shards": [asdict(s) for s in shards]}
    write_text(folder / ABOUT, json.dumps(about))
    wanted = {ABOUT, *(shard.file for shard in shards)}
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()


def shard_name(number: int) -> str:
    return f"{number:05d}.bin"
