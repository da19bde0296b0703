"""Dropout falls where the settings say, while training, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from regard.model.attention import attend
from regard.model.observe import observe
from regard.model.transformer import Embedding

from .toys import keep_lengths, some_tokens, toy_settings, translator

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
    assert Embedding(settings, 10).dropout.p == expected


@pytest.mark.parametrize("length", [8, 70])  # below and above SHORT scores
def test_dropped_attention_keeps_its_mean(length: int) -> None:
    """What is left is scaled up: on average over many draws, attention is as without dropout."""
    query, key, value = torch.randn(3, 1, 2, length, 4)
    calm = attend(query, key, value, None)
    draws = torch.stack([attend(query, key, value, None, 0.3) for _ in range(400)])
    assert not torch.allclose(draws[0], calm)
    assert torch.allclose(draws.mean(0), calm, atol=0.2)
    assert (draws.mean(0) - calm).abs().mean() < 0.05
