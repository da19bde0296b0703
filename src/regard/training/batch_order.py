"""Decides which examples share a batch and in which order batches are trained, in constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import overload

import numpy as np
from numpy.typing import NDArray

from regard.tokens.token_shards import WHOLE, Lengths, Rows, Shards

BLOCK = 1 << 12
"""Number of neighbouring pairs that stay together when a large corpus is shuffled."""

LONGEST = 1 << 24
"""A number of tokens that no source reaches."""


class WindowedPlan(Sequence[Rows]):
    """The batches of one epoch of a large corpus: every pair once, planned one window at a time.

    The corpus is split into blocks of neighbouring pairs, and the blocks are shuffled. A window consists of the blocks
    that are planned together, as if they were the whole corpus. The plan depends only on the seed and the epoch.
    """

    def __init__(self, shards: Shards, batch_tokens: int, seed: int, epoch: int, *, whole: int = WHOLE) -> None:
        self.shards, self.batch_tokens, self.seed, self.epoch = shards, batch_tokens, seed, epoch
        blocks = np.random.default_rng([seed, epoch]).permutation(-(-len(shards) // BLOCK))
        self.windows = [np.sort(part) for part in np.array_split(blocks, -(-len(shards) // max(BLOCK, whole)))]
        self.window = lru_cache(2)(self._plan_window)

    def __len__(self) -> int:
        return self.ends[-1]

    @overload
    def __getitem__(self, index: int) -> Rows: ...
    @overload
    def __getitem__(self, index: slice) -> list[Rows]: ...
    def __getitem__(self, index: int | slice) -> Rows | list[Rows]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        number = int(np.searchsorted(self.ends, index, side="right"))
        return self.window(number)[index - (self.ends[number - 1] if number else 0)]

    @cached_property
    def ends(self) -> list[int]:
        """The cumulative number of batches at the end of each window."""
        return list(accumulate(self._count(number) for number in range(len(self.windows))))

    def _plan_window(self, number: int) -> list[Rows]:
        spans = [np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self.shards))) for block in self.windows[number]]
        rows, random = np.concatenate(spans), np.random.default_rng([self.seed, self.epoch, number])
        return [rows[batch] for batch in plan_pairs(self._lengths(number), self.batch_tokens, random)]

    def _lengths(self, number: int) -> Lengths:
        blocks = map(int, self.windows[number])
        return np.concatenate([self.shards.lengths_between(b * BLOCK, (b + 1) * BLOCK) for b in blocks])

    def _count(self, number: int) -> int:
        """Returns the number of batches in a window, which does not depend on the order of equal lengths."""
        lengths = self._lengths(number)
        order = np.argsort(similarity_key(lengths))
        return len(cut_into_batches(lengths.max(1)[order] + 1, self.batch_tokens))


def plan_pairs(lengths: Lengths, batch_tokens: int, random: np.random.Generator) -> list[Rows]:
    """Returns batches of pairs of these lengths: every pair once, similar lengths together, in random order.

    Pairs of equal length are shuffled.
    """
    order = np.lexsort((random.random(len(lengths), dtype=np.float32), similarity_key(lengths)))
    return _fill_and_shuffle(order, lengths.max(1)[order] + 1, batch_tokens, random)


def similarity_key(lengths: Lengths) -> NDArray[np.int64]:
    """[N, 2] lengths of pairs -> [N] sort keys that make neighbours similar in both lengths.

    Pairs are sorted by target length in steps of two and, within a step, by source length, alternately ascending and
    descending.
    """
    sources, targets = lengths.T.astype(np.int64)
    step = targets // 2
    snake = np.where(step % 2, sources, LONGEST - sources)
    return (2 * step * LONGEST + snake) * 2 + targets % 2


def plan_texts(lengths: NDArray[np.integer], batch_tokens: int, random: np.random.Generator) -> list[Rows]:
    """Returns batches of texts of these lengths: every text once, similar lengths together, in random order."""
    order = np.lexsort((random.random(len(lengths), dtype=np.float32), lengths))
    return _fill_and_shuffle(order, lengths[order] + 2, batch_tokens, random)


def _fill_and_shuffle(
    order: Rows, lengths: NDArray[np.integer], batch_tokens: int, random: np.random.Generator
) -> list[Rows]:
    batches = [order[start:end] for start, end in cut_into_batches(lengths, batch_tokens)]
    return [batches[i] for i in random.permutation(len(batches))]


def cut_into_batches(lengths: NDArray[np.integer], batch_tokens: int) -> list[tuple[int, int]]:
    """Returns the start and end of each batch: as many rows as fit once padded to the longest, but at least one."""
    batches, start = [], 0
    while start < len(lengths):
        window = np.maximum.accumulate(lengths[start : start + batch_tokens // lengths[start] + 1])
        fitting = int(np.count_nonzero(window * np.arange(1, len(window) + 1) <= batch_tokens))
        batches.append((start, start + max(1, fitting)))
        start = batches[-1][1]
    return batches
