"""Batches of examples with little padding, and the tokenised pairs that they are made of.

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
from regard.training.batch_order import WindowedPlan, plan_pairs

SHARD_PAIRS = 1 << 17
"""Pairs in a file."""

IGNORE = -1
"""The label of a position at which nothing is predicted."""

TokensAndStarts = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The tokens of all texts end to end, and the position where each text starts."""


@dataclass(frozen=True)
class Batch:
    """Examples side by side, padded to one length; each row of a tensor belongs to one example."""

    inputs: Tensor  # [B, S] tokens, of a pair those of the source
    labels: Tensor  # [B] or [B, T] what is to be predicted; `IGNORE` where nothing is
    keep: Tensor | None  # [B, S] True for tokens, False for padding; None if there is no padding

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def tokens(self) -> int:
        """The number of predictions; the loss of an update is the mean over them."""
        return int((self.labels != IGNORE).sum())

    @property
    def seen(self) -> int:
        """The number of tokens that the model reads, without padding."""
        return self.inputs.numel() if self.keep is None else int(self.keep.sum())

    def share(self, part: int, parts: int) -> Self:
        """Returns every `parts`-th row, beginning with row `part`."""
        return self._map(lambda tensor: tensor[part::parts])

    def to(self, device: torch.device) -> Self:
        """Returns the batch with its tensors on this device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: function(v) for name, v in values.items() if isinstance(v, Tensor)})


@dataclass(frozen=True)
class PairBatch(Batch):
    """Pairs: an end follows each source, and an end follows each row of labels."""

    target: Tensor  # [B, T] what the decoder reads: a begin, and then the labels without their end

    @property
    def seen(self) -> int:
        return super().seen + self.tokens


class Examples(Shards):
    """Tokenised pairs in a folder."""

    def batch(self, rows: Rows | Sequence[int], specials: Specials) -> PairBatch:
        """Returns these pairs, padded to one length on each side."""
        pairs = [[side.tolist() for side in self.pair(int(row))] for row in rows]
        source = padded([[*left, specials.end] for left, _ in pairs], specials.pad)
        labels = padded([[*right, specials.end] for _, right in pairs], IGNORE)
        target = padded([[specials.begin, *right] for _, right in pairs], specials.pad)
        return PairBatch(source, labels, padding_mask([len(left) + 1 for left, _ in pairs]), target)

    def plan(self, batch_tokens: int, seed: int, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch: every pair once, similar lengths together, in random order."""
        if len(self) > WHOLE and not self.earlier:
            return WindowedPlan(self, batch_tokens, seed, epoch)
        return plan_pairs(self.lengths, batch_tokens, np.random.default_rng([seed, epoch]))


class ResampledExamples(Examples):
    """The same pairs in other subwords; a pair that becomes too long for the model keeps its usual ones."""

    def __init__(
        self, usual: Examples, source: TokensAndStarts, target: TokensAndStarts, specials: Specials, longest: int
    ) -> None:
        self.usual, self.source, self.target, self.earlier = usual, source, target, True
        lengths = np.stack([np.diff(source[1]), np.diff(target[1])], 1)
        self.tags: list[list[int]] = []  # that precede each source
        if specials.tags:
            sources = (usual.pair(row)[0].tolist() for row in range(len(usual)))
            self.tags = [list(takewhile(specials.tags.__contains__, tokens)) for tokens in sources]
            lengths[:, 0] += [len(tags) for tags in self.tags]
        self.resampled = lengths.max(1) <= longest
        self.lengths = np.where(self.resampled[:, None], lengths, usual.lengths).astype(np.int32)

    def __len__(self) -> int:
        return len(self.lengths)

    def of(self, rows: Rows | Sequence[int]) -> Lengths:
        return self.lengths[rows]

    def pair(self, row: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not self.resampled[row]:
            return self.usual.pair(row)
        left, right = (tokens[starts[row] : starts[row + 1]] for tokens, starts in (self.source, self.target))
        return (np.concatenate([np.array(self.tags[row], left.dtype), left]) if self.tags else left), right


def padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """B rows of tokens -> [B, longest], filled up with `value`."""
    tokens = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return torch.from_numpy(tokens)


def padding_mask(lengths: Sequence[int]) -> Tensor | None:
    """B lengths -> [B, longest] True for tokens, False for padding; None if there is no padding."""
    longest = max(lengths)
    return None if min(lengths) == longest else torch.arange(longest) < torch.tensor(lengths)[:, None]


def write_examples(folder: Path, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], vocabulary: int) -> int:
    """Writes tokenised pairs in the format of `Examples`, in constant memory; returns their number."""
    dtype, stream, shards = token_type(vocabulary), iter(pairs), list[Shard]()
    while chunk := list(islice(stream, SHARD_PAIRS)):
        shards.append(write_shard(folder / name_of(len(shards)), chunk, dtype))
    write_index(folder, shards, dtype)
    return sum(shard.pairs for shard in shards)
