"""Matrices as integers: every row is bytes from -127 to 127, or two bytes a number, times a scale of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def quantize(matrix: NDArray[Any], kind: type[np.signedinteger] = np.int8) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """[N, K] -> integers [N, K] and scales [N]: the largest of a row becomes the largest of its kind."""
    most = np.iinfo(kind).max
    scales = np.abs(matrix).max(1).astype(np.float32) / np.float32(most)
    scales[scales == 0] = 1
    return np.rint(matrix / scales[:, None]).clip(-most, most).astype(kind), scales


def dequantized(integers: NDArray[Any], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """The numbers that they stand for."""
    return integers.astype(np.float32) * scales[:, None]
