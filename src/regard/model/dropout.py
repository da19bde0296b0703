"""Dropout with masks from a counter-based random generator: fast, and reproducible on every machine.

PyTorch generates the random number of each element in sequence, which takes a sixth of a small model's training time on
a CPU (docs/log.md). Here each element gets sixteen bits of Philox (Salmon et al., 2011). Any number of threads can
compute any part of a mask, and the backward pass computes the mask again instead of storing it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.kernels import fused
from regard.model.kernels.compute_mode import fused_kernels, mode


class Dropout(nn.Module):
    """Sets a share of the elements to 0 and scales up the others to preserve the mean (Srivastava et al., 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, y: Tensor, onto: Tensor | None = None) -> Tensor:
        """Applies dropout to y in training mode, and adds `onto` if given."""
        if self.training:
            return drop(y, current_rate(self.rate), onto)
        return y if onto is None else onto + y


def current_rate(rate: float) -> float:
    """Returns the dropout rate that applies now, which is below `rate` during dropout warm-up."""
    masks = mode().masks
    return rate if masks is None else rate * masks.strength


def drop(y: Tensor, rate: float, onto: Tensor | None = None) -> Tensor:
    """Drops a share `rate` of y's elements and scales up the others; then adds `onto` if given."""
    masks = mode().masks
    if masks is None or y.device.type != "cpu" or not 0 < rate < 1:
        dropped = F.dropout(y, rate)
    else:
        mask = masks.next(y.numel(), rate)
        if kernels := fused_kernels(y, y if onto is None else onto):
            return fused.drop(kernels, onto, y, mask)
        dropped = y * mask_tensor(mask, y)
    return dropped if onto is None else onto + dropped


BLOCKS, GROUP = 16, 128
"""`BLOCKS` blocks of 128 random bits provide the mask of `GROUP` elements (see `fused_training_steps.cpp`)."""


class Mask(NamedTuple):
    """One dropout mask: the arguments that `fused_training_steps.cpp` needs to compute it."""

    first_key: int
    second_key: int
    start: int  # number of the first block of random bits
    dropped: int  # elements whose 16 random bits are below this threshold are dropped
    scale: float  # factor of the other elements, which preserves the mean


class Masks:
    """A stream of dropout masks: a 64-bit key, and the number of blocks of random bits used so far.

    `strength` is a factor of all dropout rates, which rises to 1 during dropout warm-up.
    """

    def __init__(self, key: tuple[int, int], used: int = 0, strength: float = 1.0) -> None:
        self.key, self.used, self.strength = key, used, strength

    def next(self, count: int, rate: float) -> Mask:
        """Returns the next mask for `count` elements."""
        start, self.used = self.used, self.used + -(-count // GROUP) * BLOCKS
        dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)  # out of 65,536 equally likely values
        return Mask(*self.key, start, dropped, 2**16 / (2**16 - dropped))

    def copy(self) -> Masks:
        return Masks(self.key, self.used, self.strength)


def masks_of(*key: int, strength: float = 1.0) -> Masks:
    """Returns the stream of masks for a key of any length, such as a seed and a step."""
    first, second = np.random.SeedSequence([len(key), *key]).generate_state(2)  # the length tells (1, 0) from (1,)
    return Masks((int(first), int(second)), strength=strength)


def mask_tensor(mask: Mask, x: Tensor) -> Tensor:
    """Returns a mask as a tensor of x's shape: 0 for dropped elements, the scale for all others."""
    blocks = np.arange(mask.start, mask.start + -(-x.numel() // GROUP) * BLOCKS, dtype=np.uint64)
    words = philox(blocks, mask.first_key, mask.second_key)
    halves = words.astype("<u4").view("<u2").reshape(-1, BLOCKS, 4, 2)  # [group, block, word, half]
    kept = halves.transpose(0, 2, 3, 1).reshape(-1)[: x.numel()] >= mask.dropped
    return torch.from_numpy(kept.astype(np.float32) * np.float32(mask.scale)).view(x.shape).to(x.dtype)


def philox(blocks: np.ndarray, first: int, second: int) -> np.ndarray:
    """[N] block numbers -> [N, 4] words of 32 random bits, by Philox4x32 with ten rounds."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = blocks & low, blocks >> high
    c = d = np.zeros_like(blocks)
    for number in range(10):
        one = np.uint64((first + number * 0x9E3779B9) & 0xFFFFFFFF)
        two = np.uint64((second + number * 0xBB67AE85) & 0xFFFFFFFF)
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (right >> high) ^ b ^ one, right & low, (left >> high) ^ d ^ two, left & low
    return np.stack([a, b, c, d], -1)
