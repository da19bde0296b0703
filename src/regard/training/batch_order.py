"""Which pairs are learnt from together, and in which order, in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

import numpy as np
from numpy.typing import NDArray

from regard.tokens.token_shards import WHOLE, Lengths, Rows, Shards

BLOCK = 1 << 12
"""Pairs that stay together when a large corpus is shuffled."""


class Plan(Sequence[Rows]):
    """The batches of an epoch of a large corpus: every pair once, planned a window at a time.

    The corpus is cut into blocks of neighbours, and these are shuffled. So many of them as fit a window are planned
    as if they were the whole corpus. All depends on nothing but the seed and the epoch.
    """

    def __init__(self, shards: Shards, batch_tokens: int, seed: int, epoch: int, *, whole: int = WHOLE) -> None:
        self.shards, self.batch_tokens, self.seed, self.epoch = shards, batch_tokens, seed, epoch
        blocks = np.random.default_rng([seed, epoch]).permutation(-(-len(shards) // BLOCK))
        self.windows = [np.sort(part) for part in np.array_split(blocks, -(-len(shards) // max(BLOCK, whole)))]
        self._ends: list[int] | None = None
        self._recent: deque[tuple[int, list[Rows]]] = deque(maxlen=2)

    def __len__(self) -> int:
        return self.ends[-1]

    @overload
    def __getitem__(self, index: int) -> Rows: ...
    @overload
    def __getitem__(self, index: slice) -> list[Rows]: ...
    def __getitem__(self, index: int | slice) -> Rows | list[Rows]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self.ends, index, side="right"))
        return self.window(number)[index - (self.ends[number - 1] if number else 0)]

    @property
    def ends(self) -> list[int]:
        """How many batches there are up to the end of each window; counted once."""
        if self._ends is None:
            self._ends = list(accumulate(self._count(number) for number in range(len(self.windows))))
        return self._ends

    def window(self, number: int) -> list[Rows]:
        """The batches of a window."""
        for known, batches in self._recent:
            if known == number:
                return batches
        rows, lengths = self._rows(number), self._lengths(number)
        random = np.random.default_rng([self.seed, self.epoch, number])
        found = [rows[batch] for batch in plan_all(lengths, self.batch_tokens, random)]
        self._recent.append((number, found))
        return found

    def _rows(self, number: int) -> Rows:
        spans = [np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self.shards))) for block in self.windows[number]]
        return np.concatenate(spans)

    def _lengths(self, number: int) -> Lengths:
        return np.concatenate([self.shards.between(b * BLOCK, (b + 1) * BLOCK) for b in map(int, self.windows[number])])

    def _count(self, number: int) -> int:
        """How many batches a window has: chance decides on pairs, but not on lengths."""
        sources, targets = self._lengths(number).T.astype(np.uint64)
        step = targets >> np.uint64(1)
        most = np.uint64(1 << 24)
        snake = np.where(step % 2, sources, most - sources)
        key = np.sort((step << np.uint64(26)) + (snake << np.uint64(1)) + (targets & np.uint64(1)))
        step, snake, odd = key >> np.uint64(26), (key >> np.uint64(1)) & np.uint64((1 << 25) - 1), key & np.uint64(1)
        sources = np.where(step % 2, snake, most - snake)
        longer = np.maximum(sources, step * np.uint64(2) + odd).astype(np.int64) + 1
        return count_batches(longer, self.batch_tokens)


def plan_all(lengths: Lengths, batch_tokens: int, random: np.random.Generator) -> list[Rows]:
    """Batches of pairs of these lengths: every pair once, alike lengths together, in random order.

    Pairs are sorted by target length in steps of two and, within a step, by source length, up and down in
    turn like a snake, so that neighbours are alike on both sides; equal lengths are shuffled every epoch.
    """
    sources, targets = lengths[:, 0], lengths[:, 1]
    step = targets // 2
    snake = np.where(step % 2, sources, -sources)
    order = np.lexsort((random.random(len(lengths), dtype=np.float32), targets, snake, step))
    longer = np.maximum(sources, targets)[order] + 1
    return shuffled(fill_batches(order, longer, batch_tokens), random)


def in_lengths(lengths: NDArray[np.integer], batch_tokens: int, random: np.random.Generator) -> list[Rows]:
    """Batches of texts of these lengths: every text once, alike lengths together, in random order."""
    order = np.lexsort((random.random(len(lengths), dtype=np.float32), lengths))
    return shuffled(fill_batches(order, lengths[order] + 2, batch_tokens), random)


def fill_batches(order: Rows, lengths: NDArray[np.integer], batch_tokens: int) -> list[Rows]:
    """Rows in this order, as many at a time as fit when all are padded to the longest; `lengths` are theirs."""
    batches, start = [], 0
    while start < len(order):
        size = _fitting(lengths, start, batch_tokens)
        batches.append(order[start : start + size])
        start += size
    return batches


def count_batches(lengths: NDArray[np.integer], batch_tokens: int) -> int:
    """How many batches `fill_batches` makes of rows in this order."""
    count = start = 0
    while start < len(lengths):
        start += _fitting(lengths, start, batch_tokens)
        count += 1
    return count


def _fitting(lengths: NDArray[np.integer], start: int, batch_tokens: int) -> int:
    """How many rows from this one on fit into a batch; one does in any case."""
    window = np.maximum.accumulate(lengths[start : start + batch_tokens // lengths[start] + 1])
    return max(1, int(np.count_nonzero(window * np.arange(1, len(window) + 1) <= batch_tokens)))


def shuffled(batches: list[Rows], random: np.random.Generator) -> list[Rows]:
    return [batches[i] for i in random.permutation(len(batches))]
