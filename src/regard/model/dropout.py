"""Dropout with masks from a counter-based generator: cheap, and the same for the same seed on every machine.

PyTorch draws a number for each element one after the other, which costs a small model a sixth of its training time on
a CPU (docs/log.md). Here sixteen bits of Philox (Salmon et al., 2011) decide on an element.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_here = threading.local()  # the generator of each thread, while there is one


@contextmanager
def masks_from(*key: int) -> Iterator[None]:
    """Within it, this thread draws its masks from the stream of these numbers; outside, PyTorch draws them."""
    before = getattr(_here, "bits", None)
    _here.bits = np.random.Philox(np.random.SeedSequence([len(key), *key]))  # (1, 0) is not (1,)
    try:
        yield
    finally:
        _here.bits = before


def same_masks() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For a computation that is done twice: what to do the first time in, and what to do it the second time in.

    The second draws the masks of the first, wherever the stream has come to since and whichever thread it is in.
    """
    bits: np.random.Philox | None = getattr(_here, "bits", None)
    return nullcontext(), nullcontext() if bits is None else _masks_again(bits.state)


@contextmanager
def _masks_again(state: Mapping[str, Any]) -> Iterator[None]:
    before = getattr(_here, "bits", None)
    _here.bits = np.random.Philox()
    _here.bits.state = state
    try:
        yield
    finally:
        _here.bits = before


class Dropout(nn.Module):
    """Sets a share of the elements to 0 and scales the rest up, so that the mean stays (Srivastava et al., 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.rate) if self.training else x


def drop(x: Tensor, rate: float) -> Tensor:
    """x with this share of its elements dropped, and the others scaled up."""
    bits: np.random.Philox | None = getattr(_here, "bits", None)
    if bits is None or x.device.type != "cpu" or not 0 < rate < 1:
        return F.dropout(x, rate)
    return x * mask(x, rate, bits)


def mask(x: Tensor, rate: float, bits: np.random.Philox) -> Tensor:
    """A tensor of x's shape: 0 with the chance of `rate`, to 1 / 65,536, and else what makes its mean 1."""
    dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)  # of 65,536 equally likely numbers
    drawn = torch.from_numpy(bits.random_raw(-(-x.numel() // 4))).view(torch.int16)[: x.numel()]
    kept = torch.ge(drawn, dropped - 2**15, out=torch.empty(x.numel(), dtype=torch.float32))
    return kept.mul_(2**16 / (2**16 - dropped)).view(x.shape).to(x.dtype)
