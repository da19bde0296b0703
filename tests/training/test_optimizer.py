"""Tests of the learning rate, of Adam against the formulas of its paper, and of Muon."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard.settings import TrainingSettings
from regard.training.optimizer import Muon, build_optimizer, learning_rate, orthogonalize, set_learning_rate


def test_the_papers_schedule() -> None:
    settings = TrainingSettings(schedule="paper", warmup=4000)
    for step in (1, 100, 4000, 50_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, settings, 512) == pytest.approx(expected)
    assert learning_rate(4000, settings, 512) == max(learning_rate(s, settings, 512) for s in range(1, 10_000))


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine", "linear", "constant"])
def test_schedules_rise_to_the_peak_and_never_above(schedule: str) -> None:
    settings = TrainingSettings(schedule=schedule, warmup=100, steps=1000, learning_rate=0.5)  # type: ignore[arg-type]
    rates = [learning_rate(step, settings, 64) for step in range(1, 1001)]
    assert rates[0] == pytest.approx(0.005)
    assert rates[99] == pytest.approx(0.5)
    assert max(rates) == pytest.approx(0.5)
    assert rates[99:] == sorted(rates[99:], reverse=True)
    last = {"inverse-sqrt": 0.5 * math.sqrt(0.1), "cosine": 0.0, "linear": 0.0, "constant": 0.5}[schedule]
    assert rates[-1] == pytest.approx(last, abs=1e-9)


def test_no_warmup_starts_at_the_peak() -> None:
    assert learning_rate(1, TrainingSettings(warmup=0, learning_rate=0.25), 64) == 0.25


def test_adam_follows_its_paper() -> None:
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    module = nn.Module()
    module.register_parameter("weight", weight)
    optimizer = build_optimizer(module, TrainingSettings(betas=(0.9, 0.98), epsilon=1e-9))
    expected = weight.detach().double().clone()
    first = second = torch.zeros(2, dtype=torch.float64)
    for step in range(1, 6):
        gradient = torch.tensor([0.3 * step, -1.0], dtype=torch.float64)
        first, second = 0.9 * first + 0.1 * gradient, 0.98 * second + 0.02 * gradient**2
        expected -= 0.01 * (first / (1 - 0.9**step)) / ((second / (1 - 0.98**step)).sqrt() + 1e-9)
        weight.grad = gradient.float()
        set_learning_rate(optimizer, 0.01)
        optimizer.step()
    torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_matrices_decay_and_vectors_do_not() -> None:
    module = nn.Linear(2, 2)
    before = [p.detach().clone() for p in module.parameters()]
    optimizer = build_optimizer(module, TrainingSettings(weight_decay=0.5))
    set_learning_rate(optimizer, 0.1)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(module.weight.detach(), before[0] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(module.bias.detach(), before[1])


def test_orthogonalize_keeps_directions_and_equalizes_singular_values() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, 24, 40)
    for given in (matrices, matrices.mT):
        found = orthogonalize(given)
        left, _, right = torch.linalg.svd(given, full_matrices=False)
        strengths = left.mT @ found @ right.mT  # diagonal where the directions are the same
        diagonal = strengths.diagonal(dim1=-2, dim2=-1)
        assert 0.5 < diagonal.min() < diagonal.max() < 1.3
        assert (strengths - torch.diag_embed(diagonal)).abs().max() < 1e-3
    assert orthogonalize(torch.zeros(1, 3, 3)).isfinite().all()


def test_orthogonalize_in_bfloat16_is_nearly_the_same() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, 24, 40)
    exact, rounded = orthogonalize(matrices), orthogonalize(matrices, torch.bfloat16)
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    assert (exact - rounded).norm() < 0.05 * exact.norm()
    optimizer = build_optimizer(nn.Linear(3, 3), TrainingSettings(optimizer="muon", precision="bfloat16"))
    assert isinstance(optimizer, Muon)
    assert optimizer.product_type == torch.bfloat16


def test_muon_moves_matrices_and_adam_the_rest_at_a_higher_rate() -> None:
    torch.manual_seed(0)
    module = nn.Module()
    module.inner, module.tokens = nn.Linear(6, 4), nn.Embedding(5, 4)
    optimizer = build_optimizer(module, TrainingSettings(optimizer="muon", weight_decay=0.5, table_rate=3.0))
    adam = build_optimizer(module, TrainingSettings())
    assert isinstance(optimizer, Muon)
    assert not isinstance(adam, Muon)
    set_learning_rate(optimizer, 0.1)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    gradients = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    for name, p in module.named_parameters():
        p.grad = gradients[name].clone()
    optimizer.step()
    # the first momentum is a twentieth of the gradient, and the step ahead a mean of both: the direction is the same
    direction = orthogonalize(gradients["inner.weight"][None])[0]
    expected = before["inner.weight"] * (1 - 0.1 * 0.5) - 0.1 * 0.2 * 6**0.5 * direction
    torch.testing.assert_close(module.inner.weight.detach(), expected)
    rate = 0.1 * 3.0
    signs = before["tokens.weight"] - rate * gradients["tokens.weight"].sign()  # Adam's first step, without decay
    torch.testing.assert_close(module.tokens.weight.detach(), signs, atol=1e-5, rtol=1e-5)


def test_muon_accumulates_momentum() -> None:
    """A second step without a gradient continues in the direction of the first."""
    torch.manual_seed(0)
    module = nn.Linear(6, 4, bias=False)
    optimizer = build_optimizer(module, TrainingSettings(optimizer="muon"))
    set_learning_rate(optimizer, 0.1)
    moves = []
    for gradient in (torch.randn(4, 6), torch.zeros(4, 6)):
        before = module.weight.detach().clone()
        module.weight.grad = gradient.clone()
        optimizer.step()
        moves.append(module.weight.detach() - before)
    torch.testing.assert_close(moves[0], moves[1], atol=1e-4, rtol=1e-3)
