"""Makes common mistakes on purpose in a correct model, and shows the effect on its translations.

Each mistake is a function or method that replaces the correct one; `patches` says where. tests/model/test_traps.py
shows for each that the model does not make it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from regard.model import attention, layers
from regard.model.attention import attend_readably, bias_tensor
from regard.model.positions import sinusoids
from regard.model.transformer import EncoderDecoder
from regard.tokens.tokenizer import Tokenizer

Contexts = Callable[[EncoderDecoder], list[Any]]


@dataclass(frozen=True)
class Trap:
    """A mistake: its name, and the patches that make it."""

    name: str
    patches: Contexts


@contextmanager
def mistake_in(trap: Trap, model: EncoderDecoder) -> Iterator[None]:
    """While this is open, the model makes the mistake."""
    with ExitStack() as stack:
        for context in trap.patches(model):
            stack.enter_context(context)
        yield


# The mistakes


def attention_between_heads(self: attention.Attention, x: Tensor, memory: Tensor, *_: Any) -> Tensor:
    """Splits the heads without moving their axis: [B, T, H, K], so the heads of one position attend to each other."""
    query, key, value = (
        linear(y).unflatten(-1, (self.heads, -1))
        for linear, y in ((self.query, x), (self.key, memory), (self.value, memory))
    )
    context = attend_readably(query, key, value, None)  # the scores are [B, T, H, H]: no position sees another
    return self.output(context.flatten(2))


def join_without_moving(x: Tensor) -> Tensor:
    """[B, H, T, K] -> [B, T, H * K] by a view: the numbers of several positions end up in one."""
    return x.reshape(x.shape[0], x.shape[2], -1)


def scale_by_model_width(query: Tensor, key: Tensor, value: Tensor, bias: Any, dropout: float = 0.0) -> Tensor:
    """Divides by sqrt(D) instead of sqrt(K): with H heads, scores are sqrt(H) times too small."""
    heads, width = query.shape[1], query.shape[-1]
    scaled = query @ key.mT / math.sqrt(heads * width)
    bias = bias_tensor(bias, query)
    return (scaled if bias is None else scaled + bias).softmax(-1) @ value


def no_scale(query: Tensor, key: Tensor, value: Tensor, bias: Any, dropout: float = 0.0) -> Tensor:
    """Does not scale the scores."""
    scores, bias = query @ key.mT, bias_tensor(bias, query)
    return (scores if bias is None else scores + bias).softmax(-1) @ value


def mask_after_softmax(query: Tensor, key: Tensor, value: Tensor, bias: Any, dropout: float = 0.0) -> Tensor:
    """Masks the weights after the softmax, so that rows sum to less than 1."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1)
    bias = bias_tensor(bias, query)
    return (weights if bias is None else weights * (bias == 0)) @ value


def add_after_norm(self: layers.Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """x + norm(f(x)) instead of norm(x + f(x)): the sum grows from layer to layer."""
    return x + self.norm(sublayer(x))


def garbled_exponent(length: int, width: int) -> Tensor:
    """10000^(i/D) instead of 10000^(2i/D), as it is often printed: all wavelengths are too short."""
    exponents = torch.arange(width // 2) / width
    angles = torch.arange(length)[:, None] / 10_000**exponents
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, width)


# Where each replaces the correct code


def on_encoder_attention(mistake: Callable[..., Tensor]) -> Contexts:
    return lambda model: [
        patch.object(layer.self_attention, "forward", mistake.__get__(layer.self_attention))
        for layer in model.encoder.layers
    ]


def on_module(module: Any, name: str, mistake: Callable[..., Any]) -> Contexts:
    return lambda _model: [patch.object(module, name, mistake)]


def on_positions(table: Callable[[int, int], Tensor]) -> Contexts:
    def contexts(model: EncoderDecoder) -> list[Any]:
        places = [model.source_embedding.positions, model.target_embedding.positions]
        return [patch.object(place, "table", table(64, model.settings.width)) for place in places]

    return contexts


def on_scale(model: EncoderDecoder) -> list[Any]:
    return [patch.object(embedding, "scale", 1.0) for embedding in (model.source_embedding, model.target_embedding)]


TRAPS = [
    Trap("Heads cut, but their axis not moved", on_encoder_attention(attention_between_heads)),
    Trap("Heads joined without moving the axis back", on_module(attention, "join_heads", join_without_moving)),
    Trap("Scaled by √D instead of √K", on_module(attention, "attend", scale_by_model_width)),
    Trap("Not scaled at all", on_module(attention, "attend", no_scale)),
    Trap("Mask after the softmax", on_module(attention, "attend", mask_after_softmax)),
    Trap("Residual added after the norm", on_module(layers.Residual, "forward", add_after_norm)),
    Trap("Exponent of the positions garbled", on_positions(garbled_exponent)),
    Trap("The other layout of the positions", on_positions(partial(sinusoids, halves=True))),
    Trap("Positions left out", on_positions(lambda length, width: torch.zeros(length, width))),
    Trap("Embedding not multiplied by √D", on_scale),
]


# Their effect on translations


@dataclass(frozen=True)
class Sentence:
    """A source with its end token, and its correct translation between begin and end, as tokens."""

    source: list[int]
    target: list[int]


def sentence(tokenizer: Tokenizer, source: str, target: str) -> Sentence:
    begin, end = tokenizer.specials.begin, tokenizer.specials.end
    return Sentence([*tokenizer.encode(source).ids, end], [begin, *tokenizer.encode(target).ids, end])


def log_probabilities(model: EncoderDecoder, each: Sentence) -> Tensor:
    """[T, V], of what follows each token of the right translation."""
    with torch.no_grad():
        return model(torch.tensor([each.source]), torch.tensor([each.target[:-1]]), None)[0].log_softmax(-1)


def write(model: EncoderDecoder, tokenizer: Tokenizer, each: Sentence) -> str:
    """Translates greedily and without a cache, so that every mask is used."""
    output = each.target[:1]
    with torch.no_grad():
        memory = model.encode(torch.tensor([each.source]), None)
        while len(output) < 2 * len(each.target) and (len(output) == 1 or output[-1] != each.target[-1]):
            states = model.decode(torch.tensor([output]), memory, None)
            output.append(int(model.logits(states[0, -1]).argmax()))
    return tokenizer.decode([token for token in output if token not in each.target[:1] + each.target[-1:]])


def damages(
    model: EncoderDecoder, tokenizer: Tokenizer, sentences: Sequence[Sentence], names: Sequence[str] = ()
) -> str:
    """Returns rows of a table: each mistake, its effect on the first sentence, and how many translations stay right.

    `names` are other words for the traps, the first for none.
    """
    rows = []
    for name, trap in zip(names or ["none", *(trap.name for trap in TRAPS)], [None, *TRAPS], strict=True):
        with nullcontext() if trap is None else mistake_in(trap, model):
            right = log_probabilities(model, sentences[0]).gather(1, torch.tensor(sentences[0].target[1:])[:, None])
            written = [write(model, tokenizer, each) for each in sentences]
        kept = sum(text == tokenizer.decode(each.target[1:-1]) for text, each in zip(written, sentences, strict=True))
        total = f"{float(right.sum()):.1f}".replace("-0.0", "0.0")
        rows.append(f"| {name} | {total} | {kept} / {len(sentences)} | {clipped(written[0])} |")
    return "\n".join(rows)


def clipped(text: str, most: int = 90) -> str:
    return (text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …").replace("|", "\\|")
