"""Batches of examples with little padding, made from tokenized pairs.

The tokens stay in memory-mapped files, so memory use does not grow with the corpus. The batches of an epoch depend
only on the seed and the epoch, so a resumed run continues exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.tokens.token_shards import (
    WHOLE,
    Rows as Rows,
    Shard,
    Shards,
    shard_name,
    token_type,
    write_index,
    write_shard,
)
from regard.tokens.tokenizer import Specials
from regard.training.batch_order import WindowedPlan, plan_pairs

SHARD_PAIRS = 1 << 17
"""Number of pairs per file."""

IGNORE = -1
"""Label of positions at which the model predicts nothing."""

TokensAndStarts = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The concatenated tokens of all texts, and the start position of each text."""


@dataclass(frozen=True)
class Batch:
    """Examples padded to the same length; each row of a tensor is one example."""

    inputs: Tensor  # [B, S] tokens; for a pair, those of the source
    labels: Tensor  # [B] or [B, T] what to predict; `IGNORE` where there is nothing to predict
    keep: Tensor | None  # [B, S] True for tokens, False for padding; None if there is no padding

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def tokens(self) -> int:
        """The number of predictions, over which the loss of an update is averaged."""
        return int((self.labels != IGNORE).sum())

    @property
    def seen(self) -> int:
        """The number of tokens that the model reads, without padding."""
        return self.inputs.numel() if self.keep is None else int(self.keep.sum())

    def share(self, part: int, parts: int) -> Self:
        return self._map(lambda tensor: tensor[part::parts])

    def to(self, device: torch.device) -> Self:
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: function(v) for name, v in values.items() if isinstance(v, Tensor)})


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sentence pairs; sources and labels end with an end token."""

    target: Tensor  # [B, T] decoder input: a begin token, followed by the labels without their end token

    @property
    def seen(self) -> int:
        return super().seen + self.tokens


class Examples(Shards):
    """The tokenized pairs in a folder, which can be batched."""

    def batch(self, rows: Rows | Sequence[int], specials: Specials) -> PairBatch:
        """Returns a batch of these pairs, padded to the same length on each side."""
        pairs = [[side.tolist() for side in self.pair(int(row))] for row in rows]
        source = padded([[*left, specials.end] for left, _ in pairs], specials.pad)
        labels = padded([[*right, specials.end] for _, right in pairs], IGNORE)
        target = padded([[specials.begin, *right] for _, right in pairs], specials.pad)
        return PairBatch(source, labels, padding_mask([len(left) + 1 for left, _ in pairs]), target)

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch: every pair once, similar lengths together, batches in random order."""
        if len(self) > WHOLE and not self.earlier:
            return WindowedPlan(self, batch_tokens, seed, epoch)
        return plan_pairs(self.lengths, batch_tokens, np.random.default_rng([seed, epoch]))


class ResampledExamples(Examples):
    """The same pairs with another segmentation; pairs that would become too long for the model keep the usual one."""

    def __init__(
        self, usual: Examples, source: TokensAndStarts, target: TokensAndStarts, specials: Specials, longest: int
    ) -> None:
        self.usual, self.source, self.target, self.earlier = usual, source, target, True
        lengths = np.stack([np.diff(source[1]), np.diff(target[1])], 1)
        self.tags: list[list[int]] = []  # tags before each source
        if specials.tags:
            sources = (usual.pair(row)[0].tolist() for row in range(len(usual)))
            self.tags = [list(takewhile(specials.tags.__contains__, tokens)) for tokens in sources]
            lengths[:, 0] += [len(tags) for tags in self.tags]
        self.resampled = lengths.max(1) <= longest
        self.lengths = np.where(self.resampled[:, None], lengths, usual.lengths).astype(np.int32)

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not self.resampled[row]:
            return self.usual.pair(row)
        left, right = (tokens[starts[row] : starts[row + 1]] for tokens, starts in (self.source, self.target))
        return (np.concatenate([np.array(self.tags[row], left.dtype), left]) if self.tags else left), right


def padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """B rows of tokens -> [B, longest], padded with `value`."""
    tokens = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return torch.from_numpy(tokens)


def padding_mask(lengths: Sequence[int]) -> Tensor | None:
    """B lengths -> [B, longest] True for tokens, False for padding; None if there is no padding."""
    longest = max(lengths)
    return None if min(lengths) == longest else torch.arange(longest) < torch.tensor(lengths)[:, None]


def write_examples(folder: Path, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], vocabulary: int) -> int:
    """Writes tokenized pairs for `Examples`, in constant memory; returns their number."""
    dtype, stream, shards = token_type(vocabulary), iter(pairs), list[Shard]()
    while chunk := list(islice(stream, SHARD_PAIRS)):
        shards.append(write_shard(folder / shard_name(len(shards)), chunk, dtype))
    write_index(folder, shards, dtype)
    return sum(shard.pairs for shard in shards)
