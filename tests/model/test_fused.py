"""The passes between the products: the compiled ones against the readable ones, for every set of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.model.attention import attend_readably, join_heads, mask_bias, split_heads
from regard.model.dropout import Masks, drop, mask_tensor, masks_of, philox
from regard.model.kernels import fused
from regard.model.kernels.compute_mode import computing, fused_kernels
from regard.model.positions import RotaryPositions
from regard.training.losses import chunked_cross_entropy, cross_entropy
from tests.model.toys import keep_lengths, some_tokens, toy_settings, translator

pytestmark = pytest.mark.skipif(fused.library() is None, reason="no compiler was there when Regard was installed")
SETS = ["portable", "avx2", "avx512"][: {"portable": 1, "avx2": 2, "avx512": 3}[fused.best_instructions()]]


@pytest.fixture(params=SETS)
def library(request: pytest.FixtureRequest) -> Iterator[fused.Library]:
    """The library in use, compiled for each set of instructions that this CPU has."""
    found = fused.library(request.param)
    assert found is not None
    assert found.instructions == request.param
    with mock.patch.object(fused, "library", return_value=found):
        yield found


def alike(one: Callable[..., Tensor], other: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Both give the same, and the same gradients by all inputs."""
    results = []
    for function in (one, other):
        given = [each.clone().requires_grad_() for each in inputs]
        out = function(*given)
        (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
        results.append([out.detach(), *(each.grad for each in given)])
    for mine, readable in zip(*results, strict=True):
        torch.testing.assert_close(mine, readable, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 5), (7, 16), (40, 37), (300, 128)])
def test_norm(library: fused.Library, rows: int, width: int) -> None:
    x, gain = torch.randn(rows, 2, width) * 3, torch.randn(width)
    alike(
        lambda x, gain: fused.norm(library, x, gain, 1e-5), lambda x, gain: F.rms_norm(x, (width,), gain, 1e-5), x, gain
    )


@pytest.mark.parametrize("count", [1, 15, 16, 129, 5000])
def test_gate(library: fused.Library, count: int) -> None:
    gates, rises = torch.randn(count) * 30, torch.randn(count)
    alike(lambda g, r: fused.gate(library, g, r), lambda g, r: F.silu(g) * r, gates, rises)


@pytest.mark.parametrize("count", [1, 127, 128, 1000, 70_000])
@pytest.mark.parametrize("rate", [0.0001, 0.3, 0.9])
def test_dropout(library: fused.Library, count: int, rate: float) -> None:
    mask = Masks((123, 2**32 - 1), 2**32 - 3).next(count, rate)  # the blocks' numbers pass 32 bits
    alike(
        lambda x, y: fused.drop(library, x, y, mask), lambda x, y: x + y * mask_tensor(mask, y), *torch.randn(2, count)
    )
    y = torch.randn(count)
    assert torch.equal(fused.drop(library, None, y, mask), y * mask_tensor(mask, y))


def test_random_numbers_are_those_of_philox() -> None:
    """The known answers that the authors of Philox publish."""
    found = philox(np.array([0, 2**64 - 1], dtype=np.uint64), 0, 0)[0]
    assert [f"{word:08x}" for word in found] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@given(
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from([2, 6, 16, 20, 32]),
    st.booleans(),
    st.sampled_from(["none", "causal", "padding"]),
)
def test_attention(
    batch: int, queries: int, keys: int, heads: int, width: int, turns: bool, seeing: str
) -> None:  # every set of instructions at once: a fixture would be made once for all examples
    torch.manual_seed(queries * keys)
    keys = queries if seeing == "causal" or turns else keys
    inputs = (torch.randn(batch, length, heads * width) for length in (queries, keys, keys))
    query, key, value = inputs
    keep = torch.arange(keys) < torch.randint(1, keys + 1, (batch, 1))
    bias = mask_bias(keep[:, None, None], torch.float32) if seeing == "padding" else None
    rotary = RotaryPositions(toy_settings(width=heads * width, heads=heads, positions="rotary")) if turns else None

    def readable(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (split_heads(each, heads) for each in (query, key, value))
        if rotary is not None:
            q, k = rotary(q, 0), rotary(k, 0)
        return join_heads(attend_readably(q, k, v, "causal" if seeing == "causal" else bias))

    angles = None if rotary is None else rotary.angles(0, max(queries, keys), query)
    padding = None if bias is None else bias[:, 0, 0]
    for name in SETS:
        library = fused.library(name)
        assert library is not None

        def compiled(query: Tensor, key: Tensor, value: Tensor, c: fused.Library = library) -> Tensor:
            return fused.attend(c, query, key, value, heads, padding, seeing == "causal", angles)

        alike(compiled, readable, query, key, value)


def test_loss(library: fused.Library) -> None:
    torch.manual_seed(1)
    output, labels = torch.nn.Linear(8, 37), torch.randint(37, (600,))

    def by(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
        return lambda states: function(states, output, labels, 0.1)[0] / 600

    alike(by(chunked_cross_entropy), by(cross_entropy), torch.randn(600, 8))


SHAPES = {
    "the paper": {},
    "the recipes": {"norm": "pre", "norm_kind": "rms", "positions": "rotary", "activation": "swiglu"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_model_learns_the_same_with_and_without(library: fused.Library, shape: str) -> None:
    settings = toy_settings(**SHAPES[shape] | {"dropout": 0.2})
    model = translator(settings).float().train()
    inputs = some_tokens(3, 9), some_tokens(3, 7, 1), keep_lengths([9, 4, 1])
    results = []
    for compiled in (True, False):
        model.zero_grad()
        with computing(fused=compiled, masks=masks_of(5, 6)):
            out = model(*inputs)
            out.logsumexp(-1).sum().backward()
        results.append([out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for mine, readable in zip(*results, strict=True):
        torch.testing.assert_close(mine, readable, rtol=1e-3, atol=1e-5)


def test_the_same_bits_come_out_again_with_several_threads(library: fused.Library) -> None:
    x, gain = torch.randn(2000, 64), torch.randn(64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = []
        for _ in range(5):
            inputs = x.clone().requires_grad_(), gain.clone().requires_grad_()
            fused.norm(library, *inputs, 1e-5).square().sum().backward()
            found.append([each.grad for each in inputs if each.grad is not None])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_what_it_cannot_do_is_done_readably() -> None:
    assert fused_kernels(torch.zeros(1, dtype=torch.float64)) is None
    assert fused_kernels(torch.zeros(1, device="meta")) is None
    with computing(masks=masks_of(1)):
        assert drop(torch.ones(9, dtype=torch.float64), 0.5).dtype == torch.float64
