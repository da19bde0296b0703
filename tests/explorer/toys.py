"""Models of every task and shape, with random weights, to look into."""

from __future__ import annotations

from typing import Any

import torch

from regard.explorer.model_explorer import Explorer, Run
from regard.preparation.chosen_settings import resolve
from regard.settings import TokenizerSettings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, build_model

torch.set_num_threads(1)  # toys are too small to share; two threads would wait for each other

TEXTS = [
    "A dog reads.", "The old woman sees a cat in the garden.", "She sings, and it rains at the café!",
    "Ein Hund liest.", "Die alte Frau sieht eine Katze im Garten.", "Sie singt, und es regnet im Café!",
] * 3  # fmt: skip
TOKENIZER = Tokenizer.train(TEXTS, TokenizerSettings(vocabulary=400))
TEXT = "The old dog sings."
SHAPE: dict[str, Any] = {
    "width": 16, "heads": 4, "hidden": 24, "encoder_layers": 2, "decoder_layers": 2, "max_length": 24, "tie": "none",
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "post": {"norm": "post"},
    "pre": {"norm": "pre", "tie": "all", "output_bias": True},
    "post rms": {"norm": "post", "norm_kind": "rms", "positions": "learned", "embedding_norm": True},
    "pre rms": {"norm": "pre", "norm_kind": "rms", "positions": "rotary", "activation": "swiglu", "bias": False},
    "groups": {"key_value_heads": 2, "key_width": 6, "value_width": 5, "positions": "sinusoidal-halves"},
}
GREEDY = {"beam": 1, "max_tokens": 8}
TASKS = ("translate", "write", "fill", "classify", "embed")


def contents(task: str, seed: int = 1, data: dict[str, Any] | None = None, **model: Any) -> Contents:
    """A model for a task that is fairly sure of what it says, though nobody has taught it anything."""
    labels = {"labels": ["good", "bad", "so so"]} if task == "classify" else {}
    shape = {**SHAPE, **model}
    if task not in ("translate", "write", "fill") and shape["tie"] == "all":
        shape["tie"] = "none"
    settings = resolve({"task": task, "model": shape, "data": {**labels, **(data or {})}})
    vocabularies = Vocabularies(TOKENIZER, TOKENIZER)
    torch.manual_seed(seed)
    built = build_model(settings, vocabularies).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape), alpha=0.3)
            else:
                parameter.mul_(2.0)
    return Contents(settings, vocabularies, built)


def explorer(task: str, **options: Any) -> Explorer:
    return Explorer(contents(task, **options), "toy")


def look_at(task: str, text: str = TEXT, shape: str = "pre", **request: Any) -> Run:
    """A run, greedy and short unless the request says something else."""
    made = explorer(task, **SHAPES[shape])
    return made.run({"text": text, **({"decode": GREEDY} if task in ("translate", "write") else {}), **request})


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance)
