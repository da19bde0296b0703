"""Small untrained models of every arrangement, to look at."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from regard.demo.sentence_generator import generate_splits
from regard.explorer.model_explorer import Explorer
from regard.preparation.chosen_settings import resolve
from regard.settings import TokenizerSettings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, build_model

SHAPE = {"width": 16, "heads": 2, "hidden": 32, "encoder_layers": 2, "decoder_layers": 2, "max_length": 200}
LLAMA = {"norm_kind": "rms", "positions": "rotary", "activation": "swiglu", "bias": False, "key_value_heads": 1}
ARRANGEMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "post-norm, tied": ("translate", {"norm": "post", "tie": "all"}),
    "pre-norm, untied, learned": ("translate", {"norm": "pre", "tie": "none", "positions": "learned"}),
    "halves, gelu": ("translate", {"positions": "sinusoidal-halves", "activation": "gelu", "output_bias": True}),
    "GPT": ("write", {}),
    "GPT, untied, sinusoidal": ("write", {"tie": "none", "norm": "post", "positions": "sinusoidal"}),
    "Llama": ("write", LLAMA),
    "BERT": ("fill", {}),
    "classifier": ("classify", {"norm": "pre", "positions": "sinusoidal"}),
}
SENTENCE = {
    "translate": "The dog didn't cross the street.",
    "write": "The dog didn't",
    "fill": "The [MASK] didn't cross the street.",
    "classify": "The dog didn't cross the street.",
}


@cache
def vocabulary() -> Tokenizer:
    pairs = generate_splits(400, 5, 30).train
    texts = [pair.source for pair in pairs] + [pair.target for pair in pairs]
    return Tokenizer.train(texts, TokenizerSettings(vocabulary=600))


@cache
def arranged(name: str) -> Explorer:
    """An untrained model whose numbers are not small, so that a mistake shows."""
    task, changes = ARRANGEMENTS[name]
    settings = resolve({"task": task, "model": {**SHAPE, **changes}})
    if task == "classify":
        settings = replace(settings, data=replace(settings.data, labels=("good", "bad")))
    both = Vocabularies(vocabulary(), vocabulary())
    torch.manual_seed(1)
    model = build_model(settings, both).eval()
    with torch.no_grad():
        for place, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif place.endswith(("tokens.weight", "table", "segments.weight")):
                parameter.normal_(0, 0.5)
    return Explorer(Contents(settings, both, model), name)
