"""Batches of tokenised pairs with little padding.

The tokens stay in memory-mapped files, so memory does not grow with the corpus. The batches of an epoch
depend on nothing but the seed and the epoch, so a resumed run goes on exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.tokens.token_shards import (
    WHOLE,
    Lengths,
    Rows as Rows,
    Shard,
    Shards,
    name_of,
    token_type,
    write_index,
    write_shard,
)
from regard.tokens.tokenizer import Specials
from regard.training.batch_order import Plan, plan_all

Cut = tuple[NDArray[np.int32], NDArray[np.int64]]


class Examples:
    """Tokenised pairs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.shards = Shards(folder)

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def lengths(self) -> Lengths:
        """[N, 2]: tokens of the source and the target of each pair, of a corpus for which there is room in memory."""
        return self.shards.lengths

    def lengths_of(self, rows: Rows | Sequence[int]) -> Lengths:
        """[N, 2]: the same of some pairs."""
        return self.shards.of(rows)

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The source and target tokens of one pair, without begin and end."""
        return self.shards.pair(row)

    def batch(self, rows: Rows | Sequence[int], specials: Specials) -> PairBatch:
        """The given pairs, padded to one length on each side."""
        lengths = self.lengths_of(rows) + 1  # an end on the source, a begin or end on the target
        sources, targets = lengths.max(0)
        source = np.full((len(rows), sources), specials.pad, np.int64)
        target = np.full((len(rows), targets), specials.pad, np.int64)
        labels = np.full((len(rows), targets), IGNORE, np.int64)
        target[:, 0] = specials.begin
        for i, row in enumerate(rows):
            left, right = self.pair(int(row))
            source[i, : len(left)], source[i, len(left)] = left, specials.end
            target[i, 1 : len(right) + 1] = right
            labels[i, : len(right)], labels[i, len(right)] = right, specials.end
        keep = None if lengths[:, 0].min() == sources else torch.from_numpy(np.arange(sources) < lengths[:, :1])
        tensors = [torch.from_numpy(array) for array in (source, target, labels)]
        return PairBatch(tensors[0], tensors[1], tensors[2], keep, lengths.sum(0))

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> Sequence[Rows]:
        """The batches of an epoch: every pair once, alike lengths together, in random order."""
        if len(self) > WHOLE and not self.shards.earlier:
            return Plan(self.shards, batch_tokens, seed, epoch)
        return plan_all(self.lengths, batch_tokens, np.random.default_rng([seed, epoch]))


class Recut(Examples):
    """The same pairs in other pieces; where a pair got too long for the model, in the usual ones.

    Each side has its tokens end to end, and where each text starts.
    """

    def __init__(self, usual: Examples, source: Cut, target: Cut, specials: Specials, longest: int) -> None:
        self.usual, self.source, self.target = usual, source, target
        self.tags = [_leading(usual.pair(row)[0], specials.tags) for row in range(len(usual))] if specials.tags else []
        lengths = np.stack([np.diff(source[1]), np.diff(target[1])], 1)
        if self.tags:
            lengths[:, 0] += [len(tags) for tags in self.tags]
        self.kept = lengths.max(1) <= longest
        self.cut = np.where(self.kept[:, None], lengths, usual.lengths).astype(np.int32)

    def __len__(self) -> int:
        return len(self.cut)

    @property
    def lengths(self) -> Lengths:
        return self.cut

    def lengths_of(self, rows: Rows | Sequence[int]) -> Lengths:
        return self.cut[rows]

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> Sequence[Rows]:
        return plan_all(self.cut, batch_tokens, np.random.default_rng([seed, epoch]))

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not self.kept[row]:
            return self.usual.pair(row)
        left, right = (tokens[starts[row] : starts[row + 1]] for tokens, starts in (self.source, self.target))
        return (np.concatenate([self.tags[row], left]) if self.tags else left), right


def _leading(tokens: NDArray[np.integer], tags: Sequence[int]) -> NDArray[np.integer]:
    """The tags that stand before a source."""
    count = next((i for i, token in enumerate(tokens.tolist()) if token not in tags), len(tokens))
    return tokens[:count]


@dataclass(frozen=True)
class PairBatch:
    """Pairs side by side; padding where a row is shorter than the longest."""

    source: Tensor  # [B, S], an end last
    target: Tensor  # [B, T], what the decoder reads: a begin first
    labels: Tensor  # [B, T], what it should say: an end last; `IGNORE` where there is nothing to say
    keep: Tensor | None  # [B, S] true for tokens, false for padding; none where nothing is padding
    sizes: NDArray[np.integer]  # real tokens of the source and of the labels

    @property
    def tokens(self) -> int:
        return int(self.sizes[1])

    def __len__(self) -> int:
        return len(self.source)

    def share(self, part: int, parts: int) -> PairBatch:
        source, target, labels = (tensor[part::parts] for tensor in (self.source, self.target, self.labels))
        keep = None if self.keep is None else self.keep[part::parts]
        sizes = [source.numel() if keep is None else int(keep.sum()), int((labels != IGNORE).sum())]
        return PairBatch(source, target, labels, keep, np.array(sizes))

    @property
    def seen(self) -> int:
        return int(self.sizes.sum())

    def to(self, device: torch.device) -> PairBatch:
        source, target, labels = (t.to(device, non_blocking=True) for t in (self.source, self.target, self.labels))
        return PairBatch(source, target, labels, None if self.keep is None else self.keep.to(device), self.sizes)


IGNORE = -1
"""The label of a position at which nothing is to be predicted."""


def write_examples(folder: Path, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], vocabulary: int) -> int:
    """Writes tokenised pairs as `Examples` reads them, in constant memory; returns how many."""
    dtype, stream, shards = token_type(vocabulary), iter(pairs), list[Shard]()
    while chunk := list(islice(stream, SHARD)):
        shards.append(write_shard(folder / name_of(len(shards)), chunk, dtype))
    write_index(folder, shards, dtype)
    return sum(shard.pairs for shard in shards)


SHARD = 1 << 17
"""Pairs in a file."""
