"""Matrices as bytes: every row is integers from -127 to 127, times a scale of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def quantize(matrix: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """[N, K] -> integers [N, K] and scales [N]: the largest of a row becomes 127."""
    scales = np.abs(matrix).max(1).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(matrix / scales[:, None]).clip(-127, 127).astype(np.int8), scales
