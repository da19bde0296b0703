"""Which pairs come again, and which sources have many targets, at some forty bytes a pair."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

FlagArray = NDArray[np.bool_]
HashArray = NDArray[np.int64]


class Repeats:
    """Remembers texts by hashes of 64 bits: among ten million, two that differ are alike once in 370,000 corpora."""

    def __init__(self) -> None:
        self._sources, self._pairs = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, sources: Sequence[object], targets: Sequence[str]) -> None:
        """The next pairs; a source may be whatever tells sources apart."""
        self._sources.extend(map(hash, sources))
        self._pairs.extend(map(hash, zip(sources, targets, strict=True)))

    def duplicates(self) -> FlagArray:
        """For each pair, whether it stood before."""
        return _later(np.frombuffer(self._pairs, np.int64))

    def scattered(self, most: int, duplicates: FlagArray) -> FlagArray:
        """For each pair, whether its source has more than `most` different targets."""
        sources = np.frombuffer(self._sources, np.int64)
        different = np.sort(sources[~duplicates])
        return _among(sources, different[most:][different[most:] == different[: len(different[most:])]])

    def known(self, sources: Iterable[object]) -> FlagArray:
        """For each pair, whether its source is one of these."""
        keys = np.fromiter(map(hash, sources), np.int64)
        return _among(np.frombuffer(self._sources, np.int64), np.sort(keys))


def _later(keys: HashArray) -> FlagArray:
    """For each key, whether an equal one stands before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.zeros(len(keys), bool)
    found[order[1:][ordered[1:] == ordered[:-1]]] = True
    return found


def _among(keys: HashArray, wanted: HashArray) -> FlagArray:
    """For each key, whether it is one of those that are wanted, which are in order."""
    found = np.zeros(len(keys), bool)
    if not len(wanted):
        return found
    for start in range(0, len(keys), PART):  # each part needs some memory of its own
        part = keys[start : start + PART]
        places = np.minimum(np.searchsorted(wanted, part), len(wanted) - 1)
        found[start : start + PART] = wanted[places] == part
    return found


PART = 1 << 18
