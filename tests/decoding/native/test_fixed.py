"""The weights of a large model have three bytes each, which is as exact as float32 sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from regard.decoding.native.weight_packing import LARGEST, fixed_point
from regard.settings import DecodingSettings
from tests.decoding.native.models import SETS, native, reference, some_sources, toy, write

GREEDY = DecodingSettings(beam=1)
MATRICES = arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 9)),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
)


def numbers(thrice: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
    whole = np.concatenate([np.zeros((*thrice.shape[:2], 1), np.uint8), thrice], 2)
    return whole.view("<i4")[..., 0].astype(np.float64) * scales[:, None]


@given(MATRICES)
def test_a_weight_is_off_by_no_more_than_float32_rounds_the_largest(matrix: NDArray[Any]) -> None:
    off = np.abs(numbers(*fixed_point(matrix)) - matrix)
    assert (off <= np.abs(matrix).max(1, keepdims=True) * 2.0**-23.9 + 1e-38).all()


def test_bytes_are_the_lowest_first() -> None:
    thrice, scales = fixed_point(np.array([[1.0, -1.0, 0.0], [np.inf, 1.0, 0.0]]))
    assert thrice[0].tolist() == [[0xFF, 0xFF, 0x7F], [0x01, 0x00, 0x80], [0, 0, 0]]
    assert scales[0] == pytest.approx(1 / LARGEST / 256)
    assert np.isnan(scales[1]), "a row that is not all numbers is none"


@pytest.mark.parametrize("decoder_only", [False, True])
@pytest.mark.parametrize("kernels", SETS)
def test_as_near_to_the_truth_as_float32(decoder_only: bool, kernels: str) -> None:
    """The reference is PyTorch in float64."""
    model = toy(decoder_only=decoder_only, width=64, hidden=200)
    sources = some_sources(model, 30)
    off = {}
    for fixed in (False, True):
        found = native(model, kernels, fixed=fixed).search(sources, [12] * 30, GREEDY)
        off[fixed] = [hypothesis.score for (hypothesis,) in found]
    model.double()
    truth = [hypothesis.score for (hypothesis,) in reference(model).search(sources, [12] * 30, GREEDY)]
    wrong = {fixed: np.abs(np.subtract(scores, truth)).mean() for fixed, scores in off.items()}
    assert wrong[True] < 2 * wrong[False] + 1e-6
    assert off[True] != off[False], "nothing would be tested"


@pytest.mark.parametrize("kernels", SETS)
def test_the_same_alone_and_among_many(kernels: str) -> None:
    """With many rows, weights are converted to float32 first; with few, they are used as they are."""
    model = toy(width=40, hidden=70)
    sources = some_sources(model, 50)
    engine = native(model, kernels, fixed=True)
    alone = [engine.search([source], [9], GREEDY)[0] for source in sources]
    assert engine.search(sources, [9] * 50, GREEDY) == alone


def test_three_quarters_of_the_size(tmp_path: Path) -> None:
    model = toy(decoder_only=True, width=64, heads=4, hidden=256, vocabulary=500)
    sizes = []
    for fixed in (False, True):
        write(model, tmp_path / str(fixed), fixed=fixed)
        sizes.append((tmp_path / str(fixed)).stat().st_size)
    assert 0.75 < sizes[1] / sizes[0] < 0.8
