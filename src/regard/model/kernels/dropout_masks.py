"""Dropout masks from a counter-based generator: cheap, and the same for the same seed on every machine.

PyTorch draws a number for each element one after the other, which costs a small model a sixth of its training time on
a CPU (docs/log.md). Here sixteen bits of Philox (Salmon et al., 2011) decide on an element, so that any part of a
mask can be made at any time, by any number of threads, and none has to be kept for the backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCKS, GROUP = 16, 128
"""`BLOCKS` blocks of 128 random bits together decide on `GROUP` elements (see `fused.cpp`)."""


class Mask(NamedTuple):
    """One dropout mask, as `fused.cpp` takes it."""

    first_key: int
    second_key: int
    start: int  # number of the first block of random bits
    dropped: int  # elements whose 16 bits are below this are dropped
    scale: float  # factor of the others, which keeps the mean


class Masks:
    """A stream of masks: a key of 64 bits, and how many blocks of random bits have been used.

    `strength` is the share of each dropout rate that applies, for dropout that grows in the course of training.
    """

    def __init__(self, key: tuple[int, int], used: int = 0, strength: float = 1.0) -> None:
        self.key, self.used, self.strength = key, used, strength

    def next(self, count: int, rate: float) -> Mask:
        """Returns the next mask, of `count` elements."""
        start, self.used = self.used, self.used + -(-count // GROUP) * BLOCKS
        dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)  # of 65,536 equally likely numbers
        return Mask(*self.key, start, dropped, 2**16 / (2**16 - dropped))

    def copy(self) -> Masks:
        """Returns a stream that draws the same masks from here on."""
        return Masks(self.key, self.used, self.strength)


def masks_of(*key: int, strength: float = 1.0) -> Masks:
    """Returns the stream of masks that belongs to these numbers, such as a seed and a step."""
    first, second = np.random.SeedSequence([len(key), *key]).generate_state(2)  # (1, 0) is not (1,)
    return Masks((int(first), int(second)), strength=strength)


def mask_tensor(mask: Mask, x: Tensor) -> Tensor:
    """Returns a mask as a tensor of x's shape: 0 with the chance of its rate, to 1 / 65,536, otherwise the scale."""
    blocks = np.arange(mask.start, mask.start + -(-x.numel() // GROUP) * BLOCKS, dtype=np.uint64)
    words = philox(blocks, mask.first_key, mask.second_key)
    halves = words.astype("<u4").view("<u2").reshape(-1, BLOCKS, 4, 2)  # [group, block, word, half]
    kept = halves.transpose(0, 2, 3, 1).reshape(-1)[: x.numel()] >= mask.dropped
    return torch.from_numpy(kept.astype(np.float32) * np.float32(mask.scale)).view(x.shape).to(x.dtype)


def philox(blocks: np.ndarray, first: int, second: int) -> np.ndarray:
    """Numbers of blocks [N] -> [N, 4] words of 32 random bits: Philox4x32 with ten rounds."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = blocks & low, blocks >> high
    c = d = np.zeros_like(blocks)
    for number in range(10):
        one = np.uint64((first + number * 0x9E3779B9) & 0xFFFFFFFF)
        two = np.uint64((second + number * 0xBB67AE85) & 0xFFFFFFFF)
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (right >> high) ^ b ^ one, right & low, (left >> high) ^ d ^ two, left & low
    return np.stack([a, b, c, d], -1)
