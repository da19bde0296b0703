"""Models small enough to be checked number by number, and the settings to make them from."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import ModelSettings

M = TypeVar("M", bound=nn.Module)

VOCABULARY = 23
POSITIONS = ("sinusoidal", "sinusoidal-halves", "learned", "rotary", "none")


def toy_settings(**changes: Any) -> ModelSettings:
    toy: dict[str, Any] = {
        "width": 16,
        "heads": 4,
        "hidden": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "max_length": 32,
    }
    return ModelSettings(**{**toy, **changes})


def scrambled(module: M, seed: int = 0) -> M:
    """`module` in eval mode with biases and norms away from 0 and 1, so that leaving one out shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return module.eval()


def exact(module: M, seed: int = 0) -> M:
    """`scrambled`, in float64, where what should be equal is equal to 1e-9 and a leak stands out."""
    return scrambled(module, seed).double()


def translator(settings: ModelSettings, vocabulary: int = VOCABULARY) -> EncoderDecoder:
    torch.manual_seed(0)
    return exact(EncoderDecoder(settings, vocabulary, vocabulary))


def reader(settings: ModelSettings) -> Encoder:
    torch.manual_seed(0)
    return exact(Encoder(settings, VOCABULARY))


def writer(settings: ModelSettings) -> Decoder:
    torch.manual_seed(0)
    return exact(Decoder(settings, VOCABULARY))


def some_tokens(batch: int, length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> Tensor:
    """[B, T]"""
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def keep_lengths(lengths: list[int]) -> Tensor:
    """[B, S], S the longest: true for as many tokens of each row as `lengths` says."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)


@st.composite
def model_settings(draw: st.DrawFn, positions: tuple[str, ...] = POSITIONS) -> ModelSettings:
    """Any shape of the model that its settings allow, small."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    heads = pick(1, 2, 4)
    free_widths = pick(True, False)
    return ModelSettings(
        width=10 if free_widths else heads * pick(4, 6) if heads > 1 else 8,
        heads=heads,
        key_value_heads=pick(None, *(groups for groups in (1, 2, 4) if heads % groups == 0)),
        key_width=pick(2, 4, 6) if free_widths else pick(None, 4),
        value_width=pick(1, 3, 5) if free_widths else pick(None, 3),
        hidden=pick(8, 20),
        encoder_layers=pick(1, 2, 3),
        decoder_layers=pick(1, 2, 3),
        norm=pick("post", "pre"),
        norm_kind=pick("layer", "rms"),
        activation=pick("relu", "gelu", "gelu-tanh", "silu", "swiglu"),
        positions=pick(*positions),
        max_length=16,
        tie=pick("all", "output", "inputs", "none"),
        scale_embedding=pick(True, False),
        embedding_norm=pick(False, True),
        bias=pick(True, False),
        output_bias=pick(False, True),
    )
