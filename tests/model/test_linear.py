"""Linear maps whose products are taken in bfloat16: near the exact ones, and only where asked for."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from regard.model.kernels.compute_mode import computing, mode
from regard.model.linear import ROWS, Linear, rounded_rows


def pair(inputs: int, outputs: int, bias: bool) -> tuple[Linear, nn.Linear]:
    """Ours, and one of PyTorch's with the same weights, rounded to bfloat16."""
    ours, plain = Linear(inputs, outputs, bias), nn.Linear(inputs, outputs, bias)
    plain.load_state_dict(ours.state_dict())
    with torch.no_grad():
        plain.weight.copy_(ours.weight.to(torch.bfloat16))
    return ours, plain


def gradients(linear: nn.Linear, x: Tensor, upstream: Tensor) -> tuple[Tensor, list[Tensor]]:
    x = x.detach().requires_grad_()
    found = linear(x)
    return found.detach(), list(torch.autograd.grad(found, [x, *linear.parameters()], upstream))


@given(rows=st.integers(1, 2 * ROWS + 3), inputs=st.integers(1, 40), outputs=st.integers(1, 40), bias=st.booleans())
def test_results_and_gradients_are_those_of_rounded_numbers(rows: int, inputs: int, outputs: int, bias: bool) -> None:
    """Against float32 products of the same rounded numbers: what differs is the rounding of the results."""
    torch.manual_seed(rows)
    ours, plain = pair(inputs, outputs, bias)
    x, upstream = (torch.randn(2, rows, width).to(torch.bfloat16).float() for width in (inputs, outputs))
    with computing(bfloat16=True):
        found, ours_gradients = gradients(ours, x, upstream)
    wanted, plain_gradients = gradients(plain, x, upstream)
    for a, b in zip([found, *ours_gradients], [wanted, *plain_gradients], strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-7 * float(b.abs().max()) + 1e-6)


def test_outside_nothing_is_rounded() -> None:
    ours = Linear(5, 3)
    x = torch.randn(2, 5)
    exact = torch.nn.functional.linear(x, ours.weight, ours.bias)
    assert torch.equal(ours(x), exact)
    with computing(bfloat16=True):
        assert not torch.equal(ours(x), exact)
        double = Linear(5, 3).double()
        assert torch.equal(double(x.double()), torch.nn.functional.linear(x.double(), double.weight, double.bias))
    assert torch.equal(ours(x), exact)


def test_it_ends_with_its_block_and_holds_for_one_thread() -> None:
    seen: list[bool] = []
    with computing(bfloat16=True):
        with pytest.raises(RuntimeError), computing(bfloat16=True):
            raise RuntimeError
        seen.append(mode().bfloat16)
        other = threading.Thread(target=lambda: seen.append(mode().bfloat16))
        other.start()
        other.join()
    assert seen == [True, False]
    assert not mode().bfloat16


def test_weights_that_do_not_learn_get_no_gradient() -> None:
    ours = Linear(4, 4)
    ours.weight.requires_grad_(False)
    x = torch.randn(3, 4, requires_grad=True)
    with computing(bfloat16=True):
        ours(x).sum().backward()
    assert ours.weight.grad is None
    assert x.grad is not None
    assert ours.bias.grad is not None


def test_rows_are_filled_up_with_zeros() -> None:
    x = torch.randn(ROWS + 1, 3)
    rounded = rounded_rows(x)
    assert rounded.shape == (2 * ROWS, 3)
    assert torch.equal(rounded[: ROWS + 1], x.to(torch.bfloat16))
    assert not rounded[ROWS + 1 :].any()
