"""Tokenised pairs on disk, and batches of them with little padding.

The tokens stay in memory-mapped files, so memory does not grow with the corpus. The batches of an epoch
depend on nothing but the seed and the epoch, so a resumed run goes on exactly where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ModelError
from regard.text.tokenizer import Specials

Rows = NDArray[np.int64]
Cut = tuple[NDArray[np.int32], NDArray[np.int64]]


class Examples:
    """Tokenised pairs in a folder: `tokens.bin` has them end to end, `lengths.npy` says where each ends."""

    def __init__(self, folder: Path) -> None:
        try:
            self.about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
            self.lengths: NDArray[np.int32] = np.load(folder / "lengths.npy")  # [N, 2]: source, target
            self.tokens = np.memmap(folder / "tokens.bin", dtype=self.about["dtype"], mode="r")
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise ModelError(f"{folder}: damaged training data ({error}): train again with --overwrite") from None
        self.starts = np.concatenate([[0], np.cumsum(self.lengths.sum(1, dtype=np.int64))])
        if len(self.tokens) != self.starts[-1]:
            raise ModelError(f"{folder}: damaged training data (tokens are missing): train again with --overwrite")

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The source and target tokens of one pair, without begin and end."""
        start, middle = self.starts[row], self.starts[row] + self.lengths[row, 0]
        return self.tokens[start:middle], self.tokens[middle : self.starts[row + 1]]

    def batch(self, rows: Rows | Sequence[int], specials: Specials) -> PairBatch:
        """The given pairs, padded to one length on each side."""
        lengths = self.lengths[rows] + 1  # an end on the source, a begin or end on the target
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

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch: every pair once, alike lengths together, in random order.

        Pairs are sorted by target length in steps of two and, within a step, by source length, up and down in
        turn like a snake, so that neighbours are alike on both sides; equal lengths are shuffled every epoch.
        """
        random = np.random.default_rng([seed, epoch])
        sources, targets = self.lengths[:, 0], self.lengths[:, 1]
        step = targets // 2
        snake = np.where(step % 2, sources, -sources)
        order = np.lexsort((random.random(len(self), dtype=np.float32), targets, snake, step))
        longer = np.maximum(sources, targets)[order] + 1
        return shuffled(fill_batches(order, longer, batch_tokens), random)


class Recut(Examples):
    """The same pairs in other pieces (`text/sampling.py`); where a pair got too long for the model, in the usual ones.

    Each side has its tokens end to end, and where each text starts.
    """

    def __init__(self, usual: Examples, source: Cut, target: Cut, specials: Specials, longest: int) -> None:
        self.usual, self.source, self.target = usual, source, target
        self.tags = [_leading(usual.pair(row)[0], specials.tags) for row in range(len(usual))] if specials.tags else []
        lengths = np.stack([np.diff(source[1]), np.diff(target[1])], 1)
        if self.tags:
            lengths[:, 0] += [len(tags) for tags in self.tags]
        self.kept = lengths.max(1) <= longest
        self.lengths = np.where(self.kept[:, None], lengths, usual.lengths).astype(np.int32)

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not self.kept[row]:
            return self.usual.pair(row)
        left, right = (tokens[starts[row] : starts[row + 1]] for tokens, starts in (self.source, self.target))
        return (np.concatenate([self.tags[row], left]) if self.tags else left), right


def _leading(tokens: NDArray[np.integer], tags: Sequence[int]) -> NDArray[np.integer]:
    """The tags that stand before a source."""
    count = next((i for i, token in enumerate(tokens.tolist()) if token not in tags), len(tokens))
    return tokens[:count]


def in_lengths(lengths: NDArray[np.integer], batch_tokens: int, random: np.random.Generator) -> list[Rows]:
    """Batches of texts of these lengths: every text once, alike lengths together, in random order."""
    order = np.lexsort((random.random(len(lengths), dtype=np.float32), lengths))
    return shuffled(fill_batches(order, lengths[order] + 2, batch_tokens), random)


def fill_batches(order: Rows, lengths: NDArray[np.integer], batch_tokens: int) -> list[Rows]:
    """Rows in this order, as many at a time as fit when all are padded to the longest; `lengths` are theirs."""
    batches, start = [], 0
    while start < len(order):
        window = np.maximum.accumulate(lengths[start : start + batch_tokens // lengths[start] + 1])
        fitting = int(np.count_nonzero(window * np.arange(1, len(window) + 1) <= batch_tokens))
        batches.append(order[start : start + max(1, fitting)])
        start += max(1, fitting)
    return batches


def shuffled(batches: list[Rows], random: np.random.Generator) -> list[Rows]:
    return [batches[i] for i in random.permutation(len(batches))]


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
    folder.mkdir(parents=True, exist_ok=True)
    dtype = np.uint16 if vocabulary <= 2**16 else np.uint32
    lengths: list[NDArray[np.int32]] = [np.empty((0, 2), np.int32)]
    with (folder / "tokens.bin").open("wb") as file:
        for chunk in _chunks(pairs, 10_000):
            lengths.append(np.array([(len(s), len(t)) for s, t in chunk], np.int32))
            file.write(np.fromiter((i for pair in chunk for side in pair for i in side), dtype).tobytes())
    table = np.concatenate(lengths)
    np.save(folder / "lengths.npy", table)
    about = {"dtype": np.dtype(dtype).name, "pairs": len(table)}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return len(table)


def _chunks(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]], size: int
) -> Iterator[list[tuple[Sequence[int], Sequence[int]]]]:
    chunk: list[tuple[Sequence[int], Sequence[int]]] = []
    for pair in pairs:
        chunk.append(pair)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
