"""Dropout falls where the settings say, while training, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from regard.model.attention import attend
from regard.model.dropout import Dropout, drop, masks_of
from regard.model.kernels.compute_mode import computing
from regard.model.observe import observe
from regard.model.transformer import Embedding
from tests.model.toys import keep_lengths, some_tokens, toy_settings, translator

KINDS = ["dropout", "embedding_dropout", "attention_dropout", "activation_dropout"]
INPUTS = some_tokens(2, 5), some_tokens(2, 4, 1), keep_lengths([5, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_dropout_works_in_training_only(kind: str) -> None:
    others = dict.fromkeys(KINDS, 0.0)
    calm, wild = translator(toy_settings(**others)), translator(toy_settings(**others | {kind: 0.3}))
    assert torch.equal(wild(*INPUTS), calm(*INPUTS))
    assert torch.equal(calm.train()(*INPUTS), calm.eval()(*INPUTS))
    wild.train()
    assert not torch.equal(wild(*INPUTS), wild(*INPUTS))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("dropout", "encoder.layers.0.self_residual.sum"),
        ("dropout", "decoder.layers.0.cross_residual.sum"),
        ("dropout", "encoder.layers.0.feed_forward_residual.sum"),
        ("embedding_dropout", "encoder.layers.0.self_attention.query"),
        ("embedding_dropout", "decoder.layers.0.self_attention.query"),
        ("attention_dropout", "encoder.layers.0.self_attention.context"),
        ("attention_dropout", "decoder.layers.0.cross_attention.context"),
        ("activation_dropout", "encoder.layers.0.feed_forward.output"),
    ],
)
def test_each_kind_of_dropout_changes_what_stands_behind_it(kind: str, value: str) -> None:
    model = translator(toy_settings(**dict.fromkeys(KINDS, 0.0) | {kind: 0.4})).train()
    seen = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with observe(model) as trace:
            model(*INPUTS)
        seen.append(trace[value].tensor)
    assert not torch.equal(*seen)


@pytest.mark.parametrize(("given", "expected"), [(None, 0.3), (0.0, 0.0), (0.5, 0.5)])
def test_dropout_of_embeddings_is_that_of_sublayers_unless_told(given: float | None, expected: float) -> None:
    settings = toy_settings(dropout=0.3, embedding_dropout=given)
    assert Embedding(settings, 10).dropout.rate == expected


@pytest.mark.parametrize("length", [8, 70])
def test_dropped_attention_keeps_its_mean(length: int) -> None:
    """What is left is scaled up: on average over many draws, attention is as without dropout."""
    query, key, value = torch.randn(3, 1, 2, length, 4)
    calm = attend(query, key, value, None)
    draws = torch.stack([attend(query, key, value, None, 0.3) for _ in range(400)])
    assert not torch.allclose(draws[0], calm)
    assert torch.allclose(draws.mean(0), calm, atol=0.2)
    assert (draws.mean(0) - calm).abs().mean() < 0.05


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.97])
def test_masks_drop_the_share_they_should_and_keep_the_mean(rate: float) -> None:
    count = 400_000
    with computing(masks=masks_of(7, 1)):
        dropped = drop(torch.ones(count), rate)
    zeros = (dropped == 0).double().mean().item()
    assert abs(zeros - rate) < 5 * (rate * (1 - rate) / count) ** 0.5
    assert dropped[dropped != 0].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=1e-3)
    kept = 1 - round(rate * 2**16) / 2**16
    assert dropped.max().item() * kept == pytest.approx(1.0, rel=1e-6)  # so the expected value is exactly x


@pytest.mark.parametrize(("strength", "expected"), [(0.0, 0.0), (0.5, 0.2), (1.0, 0.4)])
def test_dropout_may_have_a_part_of_its_strength(strength: float, expected: float) -> None:
    with computing(masks=masks_of(7, strength=strength)):
        dropped = Dropout(0.4).train()(torch.ones(100_000))
    assert (dropped == 0).double().mean().item() == pytest.approx(expected, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)


def test_every_kind_of_dropout_has_that_strength() -> None:
    wild = translator(toy_settings(**dict.fromkeys(KINDS, 0.4))).train()
    calm = translator(toy_settings(**dict.fromkeys(KINDS, 0.0))).train()
    with computing(masks=masks_of(7, strength=0.0)):
        assert torch.equal(wild(*INPUTS), calm(*INPUTS))


def test_masks_are_those_of_their_key_and_of_no_other() -> None:
    def draw(*key: int) -> list[bool]:
        with computing(masks=masks_of(*key)):
            first, second = drop(torch.ones(100), 0.5), drop(torch.ones(3, 7), 0.5)
        assert second.shape == (3, 7)
        return [*(first != 0).tolist(), *(second != 0).flatten().tolist()]

    assert draw(1, 2) == draw(1, 2)
    assert len({tuple(draw(*key)) for key in ((1, 2), (2, 1), (1, 3), (1, 2, 0))}) == 4
    torch.manual_seed(0)
    known = draw(1, 2)
    torch.manual_seed(5)
    assert draw(1, 2) == known  # PyTorch's own generator has no part in it


def test_neighbours_rows_and_updates_are_independent() -> None:
    draws = []
    for update in range(40):
        with computing(masks=masks_of(1, update)):
            draws.append(drop(torch.ones(64, 256), 0.3))
    kept = (torch.stack(draws) != 0).double() - 0.7  # [update, row, column]
    variance = 0.21
    for other in (kept.roll(1, 0), kept.roll(1, 1), kept.roll(1, 2), kept.roll(4, 2), kept.flip(2)):
        correlation = (kept * other).mean().item() / variance
        assert abs(correlation) < 5 / kept.numel() ** 0.5


def test_the_gradient_passes_where_the_value_does() -> None:
    x = torch.randn(50, requires_grad=True)
    with computing(masks=masks_of(3)):
        y = drop(x, 0.4)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad * x.detach(), y.detach())


def test_outside_pytorch_draws() -> None:
    torch.manual_seed(1)
    own = drop(torch.ones(50), 0.3)
    torch.manual_seed(1)
    assert torch.equal(own, torch.nn.functional.dropout(torch.ones(50), 0.3))
