"""Dropout with masks from a counter-based generator: cheap, and the same for the same seed on every machine.

PyTorch draws a number for each element one after the other, which costs a small model a sixth of its training time on
a CPU (docs/log.md). Here sixteen bits of Philox (Salmon et al., 2011) decide on an element, so that any part of a
mask can be made at any time, by any number of threads, and none has to be kept for the backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model import fused

_here = threading.local()  # the masks of each thread, while there are any


class Masks:
    """A stream of masks: a key of 64 bits, and how many blocks of 128 random bits have been used.

    `strength` is the share of each rate that counts, for dropout that grows in the course of training.
    """

    def __init__(self, key: tuple[int, int], used: int = 0, strength: float = 1.0) -> None:
        self.key, self.used, self.strength = key, used, strength

    def next(self, count: int, rate: float) -> tuple[int, int, int, int, float]:
        """The key, first block, threshold and scale of the next mask, of so many elements."""
        start, self.used = self.used, self.used + -(-count // GROUP) * BLOCKS
        dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)  # of 65,536 equally likely numbers
        return *self.key, start, dropped, 2**16 / (2**16 - dropped)


@contextmanager
def masks_from(*key: int, strength: float = 1.0) -> Iterator[None]:
    """Within it, this thread draws its masks from the stream of these numbers; outside, PyTorch draws them."""
    first, second = np.random.SeedSequence([len(key), *key]).generate_state(2)  # (1, 0) is not (1,)
    with _masks(Masks((int(first), int(second)), strength=strength)):
        yield


def same_masks() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For a computation that is done twice: what to do the first time in, and what to do it the second time in.

    The second draws the masks of the first, wherever the stream has come to since and whichever thread it is in.
    """
    masks: Masks | None = getattr(_here, "masks", None)
    return nullcontext(), nullcontext() if masks is None else _masks(Masks(masks.key, masks.used, masks.strength))


@contextmanager
def _masks(masks: Masks) -> Iterator[None]:
    before = getattr(_here, "masks", None)
    _here.masks = masks
    try:
        yield
    finally:
        _here.masks = before


class Dropout(nn.Module):
    """Sets a share of the elements to 0 and scales the rest up, so that the mean stays (Srivastava et al., 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, y: Tensor, onto: Tensor | None = None) -> Tensor:
        """y with dropout while training, added to what it goes `onto`, if there is anything."""
        if self.training:
            return drop(y, at_present(self.rate), onto)
        return y if onto is None else onto + y


def at_present(rate: float) -> float:
    """What counts of a rate now, while dropout grows."""
    masks: Masks | None = getattr(_here, "masks", None)
    return rate if masks is None else rate * masks.strength


def drop(y: Tensor, rate: float, onto: Tensor | None = None) -> Tensor:
    """y with this share of its elements dropped, and the others scaled up; added to `onto` if there is one."""
    masks: Masks | None = getattr(_here, "masks", None)
    if masks is None or y.device.type != "cpu" or not 0 < rate < 1:
        dropped = F.dropout(y, rate)
    else:
        mask = masks.next(y.numel(), rate)
        if library := fused.usable(y, y if onto is None else onto):
            return fused.drop(library, onto, y, mask)
        dropped = y * spelt_out(mask, y)
    return dropped if onto is None else onto + dropped


def spelt_out(mask: tuple[int, int, int, int, float], x: Tensor) -> Tensor:
    """A mask as a tensor of x's shape: 0 with the chance of its rate, to 1 / 65,536, and else what makes its mean 1."""
    first, second, start, dropped, scale = mask
    words = philox(np.arange(start, start + -(-x.numel() // GROUP) * BLOCKS, dtype=np.uint64), first, second)
    halves = words.astype("<u4").view("<u2").reshape(-1, BLOCKS, 4, 2)  # [group, block, word, half]
    kept = halves.transpose(0, 2, 3, 1).reshape(-1)[: x.numel()] >= dropped
    return torch.from_numpy(kept.astype(np.float32) * np.float32(scale)).view(x.shape).to(x.dtype)


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


BLOCKS, GROUP = 16, 128
"""So many blocks together decide on so many elements (see `fused.cpp`)."""
