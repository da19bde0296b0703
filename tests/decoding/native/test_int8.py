"""Int8 weights are close to the original ones, and give the same bits on every instruction set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from regard.decoding.native.weight_packing import dequantized, quantize
from regard.settings import DecodingSettings
from tests.decoding.native.models import (
    SETS,
    Model,
    beams,
    drawn,
    greedy,
    models,
    native,
    reference_score,
    some_sources,
    toy,
    works,
    write,
)
from tests.examples import examples

matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=20),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-30),
)


kinds = st.sampled_from([np.int8, np.int16])


@given(matrices, kinds)
def test_a_round_trip_is_off_by_half_a_step_at_most(matrix: NDArray[Any], kind: type[np.signedinteger]) -> None:
    integers, scales = quantize(matrix, kind)
    assert integers.dtype == kind
    assert np.abs(integers.astype(int)).max() <= {np.int8: 127, np.int16: 32767}[kind]
    off = np.abs(matrix - integers.astype(np.float64) * scales[:, None].astype(np.float64))
    assert (off <= (0.50001 if kind is np.int8 else 0.502) * scales[:, None]).all()


@given(matrices, kinds)
def test_what_is_quantized_stays_as_it_is(matrix: NDArray[Any], kind: type[np.signedinteger]) -> None:
    integers, scales = quantize(matrix, kind)
    again, same = quantize(dequantized(integers, scales), kind)
    assert np.array_equal(again, integers)
    assert same == pytest.approx(np.where((integers == 0).all(1), 1, scales), rel=1e-6)


@given(data=st.data(), model=models())
@examples(15)
def test_every_set_of_instructions_gives_the_same_bits(data: st.DataObject, model: Model) -> None:
    """Tokens, scores and alignments are equal on plain, AVX2 and AVX-512 code."""
    work = data.draw(works(model, greedy | beams | drawn))
    first, *others = (native(model, kernels, int8=True).search(*work) for kernels in SETS)
    for other in others:
        assert other == first


def test_the_largest_integers_do_not_overflow() -> None:
    """Nearly all weights and activations are 127 or -127."""
    model = toy(width=256, heads=4, hidden=512, norm="pre", vocabulary=40)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.sign_().mul_(0.05)
            else:
                parameter.zero_() if parameter.abs().max() < 0.9 else parameter.fill_(1.0)
        model.logits.weight[:, ::3] = 0.05  # sums of one sign
    sources = some_sources(model, 6)
    expected = native(model).search(sources, [8] * 6, DecodingSettings(beam=3))
    for kernels in SETS:
        found = native(model, kernels, int8=True).search(sources, [8] * 6, DecodingSettings(beam=3))
        for a, b in zip(found, expected, strict=True):
            assert a[0].score == pytest.approx(b[0].score, abs=0.1)


@pytest.mark.parametrize("decoder_only", [False, True])
@pytest.mark.parametrize("kernels", SETS)
def test_scores_are_near_those_of_float32(decoder_only: bool, kernels: str) -> None:
    model = toy(decoder_only=decoder_only, width=64, hidden=100)
    settings = DecodingSettings(beam=3, penalty="power", length_penalty=1.0)
    sources = some_sources(model, 20)
    found = native(model, kernels, int8=True).search(sources, [12] * 20, settings)
    off = [h.score - reference_score(model, ids, h, settings) for ids, (h, *_) in zip(sources, found, strict=True)]
    assert sum(map(abs, off)) / len(off) < 0.1
    assert max(map(abs, off)) < 0.4
    assert any(off), "int8 would be float32"


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("tie", ["all", "none"])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_tables_of_tokens_are_as_good_as_exact(kernels: str, tie: str, beam: int) -> None:
    """No layer adds anything here. With one byte per number, scores would differ by 0.05 or more."""
    model = toy(width=64, hidden=100, vocabulary=600, tie=tie)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attention.output" in name or "feed_forward.fall" in name:
                parameter.zero_()
    settings = DecodingSettings(beam=beam, penalty="power", length_penalty=0.0)
    sources = some_sources(model, 20)
    found = native(model, kernels, int8=True).search(sources, [12] * 20, settings)
    expected = native(model, kernels).search(sources, [12] * 20, settings)
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in expected]
    off = [
        abs(a.score - b.score)
        for ours, theirs in zip(found, expected, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    ]
    assert 0 < max(off) < 0.02


def test_a_quarter_of_the_size(tmp_path: Path) -> None:
    """The table of tokens does not count: it is stored in one byte and again in two bytes per number."""
    model: Model = toy(width=64, heads=4, hidden=256, vocabulary=500)
    for int8 in (False, True):
        write(model, tmp_path / str(int8), int8=int8)
    sizes = [(tmp_path / str(int8)).stat().st_size for int8 in (True, False)]
    twice = 500 * 64 * 2
    assert 0.25 < (sizes[0] - twice) / (sizes[1] - 2 * twice) < 0.33
