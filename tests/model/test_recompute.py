"""Layers that are run again in the backward pass: the same numbers, and less that is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.model.dropout import masks_of
from regard.model.kernels.compute_mode import computing
from regard.model.transformer import EncoderDecoder, Stack
from regard.settings import ModelSettings

SHAPE: dict[str, Any] = {"width": 16, "heads": 2, "hidden": 32, "encoder_layers": 2, "decoder_layers": 2}
SHAPE |= {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}


def gradients(recomputes: bool, rounds: bool, seed: int | None = 1) -> tuple[dict[str, Tensor], int]:
    """Of a loss of random tokens, the backward pass being outside of what the forward pass was in; and what is kept."""
    torch.manual_seed(0)
    model = EncoderDecoder(ModelSettings(**SHAPE), 20, 20)
    for module in model.modules():
        if isinstance(module, Stack):
            module.recomputes = recomputes
    source, target = torch.randint(20, (3, 7)), torch.randint(20, (3, 5))
    kept: list[int] = []
    torch.manual_seed(1)

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    masks = masks_of(seed, strength=0.7) if seed else None
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, computing(masks=masks, bfloat16=rounds):
        loss = model(source, target, None).logsumexp(-1).sum()
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, sum(kept)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("seed", [1, None])  # masks of our own, and PyTorch's
def test_gradients_are_the_same_bit_for_bit_and_less_is_kept(rounds: bool, seed: int | None) -> None:
    plain, much = gradients(False, rounds, seed)
    again, little = gradients(True, rounds, seed)
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, again[name]), name
    assert little < much / 3


def test_other_masks_would_be_seen() -> None:
    one, other = gradients(True, False, 1)[0], gradients(True, False, 2)[0]
    assert not torch.equal(one["source_embedding.tokens.weight"], other["source_embedding.tokens.weight"])


def test_nothing_is_run_twice_outside_of_training() -> None:
    model = EncoderDecoder(ModelSettings(**SHAPE), 20, 20).eval()
    source = torch.randint(20, (2, 4))
    plain = model(source, source, None)
    model.encoder.recomputes = model.decoder.recomputes = True
    assert torch.equal(plain, model(source, source, None))
