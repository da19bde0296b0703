"""Models that write, fill, label and embed, with random weights: small, quick, and far from sure of anything."""

from __future__ import annotations

from typing import Any

import torch

from regard.model.transformer import Encoder
from regard.preparation.chosen_settings import resolve
from regard.settings import Settings, TokenizerSettings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, build_model
from tests.decoding.conftest import CORPUS

TEXTS = [side for pair in CORPUS for side in pair]
TOKENIZER = Tokenizer.train(TEXTS, TokenizerSettings(vocabulary=400))
SHAPE: dict[str, Any] = {
    "width": 16, "heads": 2, "hidden": 32, "encoder_layers": 1, "decoder_layers": 1, "max_length": 16, "dropout": 0.3,
}  # fmt: skip


def toy(task: str, sharpness: float = 1.0, seed: int = 1, data: dict[str, Any] | None = None, **model: Any) -> Contents:
    """A model for a task; the sharper it is, the more it prefers some tokens to others."""
    settings: Settings = resolve({"task": task, "model": {**SHAPE, "tie": "none", **model}, "data": data or {}})
    vocabularies = Vocabularies(TOKENIZER, TOKENIZER)
    torch.manual_seed(seed)
    built = build_model(settings, vocabularies).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape), alpha=0.3)
            else:
                parameter.mul_(3.0 * sharpness)
    if isinstance(built, Encoder):
        assert (built.fill is not None) == (task == "fill")
    return Contents(settings, vocabularies, built)
