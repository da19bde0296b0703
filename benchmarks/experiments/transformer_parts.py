"""Measures parts of the Transformer: scale, residual connections, positions, states, and the cost of attention."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from random import Random
from statistics import median
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.experiments.claim_records import Figures
from benchmarks.experiments.toy_training import VOCABULARY
from regard.demo import GLASS
from regard.demo.train_glass_model import generate_glass_splits
from regard.model.attention import attend
from regard.model.layers import FeedForward, Residual
from regard.model.observe import observe
from regard.model.transformer import Encoder, EncoderDecoder
from regard.settings import ModelSettings
from regard.weights import read_folder

KEY_WIDTHS = (1, 4, 16, 64, 256, 1024)
KEYS, QUERIES = 64, 1000
DEPTH = 24
PLACES: tuple[Literal["none", "sinusoidal", "learned", "rotary"], ...] = ("none", "sinusoidal", "learned", "rotary")
SENTENCES = 400
read_glass = cache(read_folder)
LEVELS = {
    "word vector": "source_embedding.tokens",
    "with its position": "source_embedding.sum",
    "after layer 1": "encoder.layers.0.feed_forward_residual.norm",
    "after layer 2": "encoder.layers.1.feed_forward_residual.norm",
}
ATTENDED = (64, 128, 256, 512, 1024, 2048, 4096)


def it(pieces: list[str]) -> int:
    return pieces.index("▁it")


def adjective(pieces: list[str]) -> int:
    return len(pieces) - 3  # before the full stop and the end


def measure_saturation(seed: int) -> Figures:
    """Measures the largest weight and the slope of a softmax over products of random queries and keys, by width."""
    torch.manual_seed(seed)
    found: Figures = {"keys": KEYS, "queries": QUERIES, "widths": list(KEY_WIDTHS)}
    for name, power in (("divided", 0.5), ("plain", 0.0)):
        weights = [
            (torch.randn(QUERIES, width) @ torch.randn(KEYS, width).T / width**power).softmax(-1)
            for width in KEY_WIDTHS
        ]
        largest = [float(each.max(-1).values.mean()) for each in weights]
        slopes = [float((1 - each.square().sum(-1)).mean()) for each in weights]  # the trace of the softmax's Jacobian
        found[name] = {"largest": rounded(largest), "slope": rounded(slopes)}
    return found


def measure_residuals(seed: int) -> Figures:
    """Measures the gradient that reaches each layer of a deep new encoder, with residual sums and without.

    Norms make up for much, so one variant has none. `alike` is the mean cosine of two positions.
    """
    found: Figures = {"depth": DEPTH, "layers": list(range(DEPTH + 1))}
    for name, norm, sums, norms in (
        ("with residual sums, pre-norm", "pre", True, True),
        ("with residual sums, post-norm", "post", True, True),
        ("without residual sums", "post", False, True),
        ("without residual sums and norms", "post", False, False),
    ):
        with nullcontext() if sums else without_residuals(norms=norms):
            found[name] = gradients(seed, norm)
    return found


def gradients(seed: int, norm: str) -> Figures:
    """Returns norms of the gradient of a random target by the input of each layer and the output of the last."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"width": 64, "heads": 4, "hidden": 256, "encoder_layers": DEPTH, "dropout": 0.0}
    model = Encoder(ModelSettings(**shape, norm=norm), VOCABULARY)  # type: ignore[arg-type]
    states: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        states.extend([inputs[0], output] if not states else [output])

    for layer in model.encoder.layers:
        layer.register_forward_hook(keep)
    out = model(torch.randint(VOCABULARY, (8, 32)), None)
    by_state = torch.autograd.grad((out * torch.randn_like(out)).sum(), states)
    return {"gradient": rounded([float(each.norm()) for each in by_state]), "alike": rounded(map(alike, states))}


def alike(states: Tensor) -> float:
    """[B, T, D] -> the mean cosine of two positions."""
    unit, count = nn.functional.normalize(states.detach(), dim=-1), states.shape[1]
    return (float((unit @ unit.mT).mean()) * count - 1) / (count - 1)


@contextmanager
def without_residuals(*, norms: bool) -> Iterator[None]:
    """Replaces residual sums: a sublayer's output is not added to its input."""

    def forward(self: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        output = self.dropout(sublayer(x))
        return self.norm(output) if norms else output

    with mock.patch.object(Residual, "forward", forward):
        yield


def measure_permutation(seed: int) -> Figures:
    """Measures how far the states of a permuted text are from the permuted states, in a new encoder."""
    torch.manual_seed(seed)
    tokens, order = torch.randint(VOCABULARY, (64, 12)), torch.randperm(12)
    found: Figures = {"length": 12, "texts": 64, "apart": {}}
    for place in PLACES:
        torch.manual_seed(seed)
        shape: dict[str, Any] = {"width": 64, "heads": 4, "hidden": 256, "encoder_layers": 2, "dropout": 0.0}
        model = Encoder(ModelSettings(**shape, positions=place), VOCABULARY).eval()
        with torch.inference_mode():
            moved, states = model(tokens[:, order], None), model(tokens, None)[:, order]
        found["apart"][place] = float(f"{float((moved - states).norm() / states.norm()):.2g}")
    return found


def measure_contexts(seed: int) -> Figures:
    """Compares the vectors of a word of the glass model in two contexts, and what they reveal of the context.

    For each vector of the word, a linear map that is fitted to half of the sentences guesses in the other half
    whether the French pronoun is il or elle.
    """
    pair = [f"The animal didn't cross the {thing} because it was too wide." for thing in ("street", "bridge")]
    candidates = [each for each in generate_glass_splits().train if each.pronoun in ("il", "elle")]
    Random(seed).shuffle(candidates)
    found: Figures = {"texts": pair, "levels": list(LEVELS), "sentences": SENTENCES, "words": {}}
    found["different words"] = rounded(distances(vectors(pair[0], it), vectors(pair[0], adjective)))
    is_he = torch.tensor([each.pronoun == "il" for each in candidates[:SENTENCES]])
    found["he"] = round(float(is_he.float().mean()), 3)
    for name, place in (("it", it), ("the adjective", adjective)):
        apart = distances(*(vectors(text, place) for text in pair))
        rows = torch.stack([vectors(each.source, place) for each in candidates[:SENTENCES]], 1)
        found["words"][name] = {
            "apart": rounded(apart),
            "guessed": [round(accuracy_of_linear_map(each, is_he), 3) for each in rows],
        }
    return found


@torch.inference_mode()
def vectors(text: str, place: Callable[[list[str]], int]) -> Tensor:
    """Returns [4, D]: a word in the table, with its position, and after each of the two layers of the encoder."""
    glass = read_glass(GLASS)
    tokenizer, model = glass.vocabularies.source, glass.model
    assert isinstance(model, EncoderDecoder)
    ids = [*tokenizer.encode(text).ids, tokenizer.specials.end]
    with observe(model) as trace:
        model.encode(torch.tensor([ids]), None)
    where = place(tokenizer.pieces(ids))
    return torch.stack([trace[name].tensor[0, where] for name in LEVELS.values()])


def distances(one: Tensor, other: Tensor) -> list[float]:
    """[N, D] twice -> the cosine distance of each vector from its twin."""
    return [max(0.0, 1 - value) for value in torch.cosine_similarity(one, other, -1).tolist()]


def accuracy_of_linear_map(x: Tensor, right: Tensor) -> float:
    """[N, D] vectors -> how often the sign of a linear map, fitted to the first half, is right in the second."""
    x = torch.cat([x, torch.ones(len(x), 1)], 1).double()
    half, wanted = len(x) // 2, 2.0 * right.double() - 1
    square = x[:half].T @ x[:half] + 1e-3 * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(square, x[:half].T @ wanted[:half])
    return float(((x[half:] @ weights > 0) == right[half:]).float().mean())


def measure_cost(seed: int) -> Figures:
    """Measures the milliseconds of attention and of the feed-forward layer by length, and fits the first."""
    torch.manual_seed(seed)
    settings = ModelSettings(width=128, heads=4, hidden=512, dropout=0.0)
    forward = FeedForward(settings).eval()
    attention, other = [], []
    for length in ATTENDED:
        query, key, value = (torch.randn(1, 4, length, 32) for _ in range(3))
        x = torch.randn(1, length, 128)
        with torch.inference_mode():
            attention.append(milliseconds(partial(attend, query, key, value, None)))
            other.append(milliseconds(partial(forward, x)))
    lengths = np.array(ATTENDED, float)
    terms = np.stack([np.ones_like(lengths), lengths, lengths**2], 1)
    times = np.array(attention)
    fit, *_ = np.linalg.lstsq(terms / times[:, None], np.ones_like(times), rcond=None)  # relative errors count
    slope = math.log(attention[-1] / attention[-3]) / math.log(ATTENDED[-1] / ATTENDED[-3])
    error = float(np.abs(terms @ fit / times - 1).max())
    found: Figures = {"lengths": list(ATTENDED), "attention": attention, "feed-forward": other}
    return found | {"fit": [float(f"{c:.3g}") for c in fit], "exponent": round(slope, 2), "error": round(error, 3)}


def milliseconds(call: Callable[[], Tensor]) -> float:
    """Returns the median processor time of some calls."""
    took: list[float] = []
    while len(took) < 4 or (sum(took) < 0.25 and len(took) < 100):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return float(f"{1000 * median(took[1:]):.4g}")


def rounded(values: Iterable[float]) -> list[float]:
    """Rounds to four significant digits."""
    return [float(f"{value:.4g}") for value in values]
