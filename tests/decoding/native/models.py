"""Random models and work for both engines, and the comparison of their results."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
import torch
from hypothesis import strategies as st

from regard.decoding.decoder_step import NextToken, TranslationStep, WritingStep
from regard.decoding.native import weight_packing as packing
from regard.decoding.native.compiled_library import PackedModel, instructions
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.pytorch_engine import TorchSearch
from regard.decoding.search_interface import Hypothesis, length_penalty
from regard.decoding.token_shortlist import Shortlist
from regard.model.transformer import Decoder, EncoderDecoder
from regard.settings import DecodingSettings, ModelSettings
from regard.tokens.tokenizer import Specials

Model = EncoderDecoder | Decoder
SPECIALS = Specials()
FIRST = 5
"""The first id that stands for text."""
TOLERANCE = 1e-3
"""Largest difference between the scores of the two engines."""
SETS = [name for name in ("avx512", "avx2", "portable") if instructions(name)]
"""The instruction sets of this machine, best first."""
PRELOADED = "san.so" in os.environ.get("LD_PRELOAD", "")
"""True in `make sanitize`."""


def build(shape: ModelSettings, vocabulary: int, *, decoder_only: bool = False, seed: int = 0) -> Model:
    """Returns an uncertain model whose biases and gains all matter; its source vocabulary may be larger."""
    torch.manual_seed(seed)
    if decoder_only:
        model: Model = Decoder(shape, vocabulary)
    else:
        model = EncoderDecoder(shape, vocabulary + 3 * (shape.tie in ("output", "none")), vocabulary)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape), alpha=0.3)
            else:
                parameter.mul_(2.0)
        if model.logits.bias is not None:
            model.logits.bias[SPECIALS.end] += 2.0  # many outputs end before their limit
    return model.eval()


def packed(model: Model, kernels: str = "", *, int8: bool = False, fixed: bool = False) -> PackedModel:
    """Packs a model for the native engine, and deletes the file."""
    with tempfile.TemporaryDirectory() as folder:
        write(model, Path(folder) / "packed", int8=int8, fixed=fixed)
        return PackedModel(Path(folder) / "packed", kernels)


def write(model: Model, path: Path, *, int8: bool = False, fixed: bool = False) -> None:
    """`fixed`: as a large model, whose weights have three bytes each."""
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    with pytest.MonkeyPatch.context() as patch:
        if fixed:
            patch.setattr(packing, "WORTH_FIXED", 0)
        packing.pack(weights, model.settings, path, decoder_only=isinstance(model, Decoder), int8=int8)


def native(
    model: Model, kernels: str = "", *, threads: int = 1, int8: bool = False, fixed: bool = False
) -> NativeSearch:
    return searching(packed(model, kernels, int8=int8, fixed=fixed), model, threads)


def searching(weights: PackedModel, model: Model, threads: int = 1) -> NativeSearch:
    longest, decoder_only = model.settings.max_length, isinstance(model, Decoder)
    return NativeSearch(weights, SPECIALS, longest=longest, decoder_only=decoder_only, threads=threads)


def reference(model: Model, shortlist: Shortlist | None = None) -> TorchSearch:
    return TorchSearch(model, SPECIALS, shortlist)


class Work(NamedTuple):
    """The arguments of a search."""

    sources: list[list[int]]
    limits: list[int]
    settings: DecodingSettings


def assert_same(
    model: Model,
    work: Work,
    ours: list[list[Hypothesis]],
    theirs: list[list[Hypothesis]],
    shortlist: Shortlist | None = None,
) -> None:
    """Requires the same scores, and the same tokens or others with the same score in the reference."""
    assert len(ours) == len(theirs) == len(work.sources)
    for source, found, expected in zip(work.sources, ours, theirs, strict=True):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            if (a.tokens, a.finished) == (b.tokens, b.finished):
                assert a.log_probabilities == pytest.approx(b.log_probabilities, rel=0, abs=TOLERANCE)
                assert a.score == pytest.approx(b.score, rel=0, abs=TOLERANCE)
                assert len(a.alignment) == len(b.alignment)
                for ours_looks, theirs_looks in zip(a.alignment, b.alignment, strict=True):
                    assert ours_looks == pytest.approx(theirs_looks, rel=0, abs=TOLERANCE)
            else:
                score = reference_score(model, source, a, work.settings, shortlist)
                assert a.score == pytest.approx(score, rel=0, abs=TOLERANCE)
                assert b.score == pytest.approx(score, rel=0, abs=TOLERANCE), (a, b)


@torch.inference_mode()
def reference_score(
    model: Model,
    source: Sequence[int],
    output: Hypothesis,
    settings: DecodingSettings,
    shortlist: Shortlist | None = None,
) -> float:
    """Computes the score of any output with PyTorch."""
    after = NextToken(SPECIALS, settings.repetition_penalty, reference(model, shortlist)._allowed([source], []))
    step: TranslationStep | WritingStep
    if isinstance(model, Decoder):
        step = WritingStep(model, [source[-model.settings.max_length + 1 :]], after)
    else:
        step = TranslationStep(model, [source], SPECIALS, after)
    tokens = [*output.tokens, *[SPECIALS.end] * output.finished]
    scores, total = step.start(), 0.0
    for place, token in enumerate(tokens):
        total += float(scores[0, token])
        if place + 1 < len(tokens):
            scores = step.advance(torch.tensor([token]), torch.tensor([0]), None)
    return total / length_penalty(settings.penalty, settings.length_penalty)(len(tokens))


SHAPE: dict[str, Any] = {
    "width": 24, "heads": 2, "hidden": 40, "encoder_layers": 2, "decoder_layers": 2, "max_length": 30, "tie": "none",
    "output_bias": True,
}  # fmt: skip


def toy(*, decoder_only: bool = False, vocabulary: int = 60, seed: int = 0, **shape: Any) -> Model:
    """Returns a small model with a common shape."""
    return build(ModelSettings(**{**SHAPE, **shape}), vocabulary, decoder_only=decoder_only, seed=seed)


def some_sources(model: Model, count: int, *, longest: int = 12, seed: int = 0) -> list[list[int]]:
    """Returns random sources of random lengths; those for encoders may be empty."""
    dice, vocabulary = random.Random(seed), model.logits.out_features
    shortest = 1 if isinstance(model, Decoder) else 0
    return [[dice.randrange(FIRST, vocabulary) for _ in range(dice.randint(shortest, longest))] for _ in range(count)]


@st.composite
def shapes(draw: st.DrawFn) -> ModelSettings:
    """Draws shapes with every kind of layer, and widths that fill vectors or do not."""
    positions = draw(st.sampled_from(get_args(get_type_hints(ModelSettings)["positions"])))
    heads = draw(st.sampled_from([1, 2, 4, 6]))
    keys, values = draw(st.sampled_from([None, 1, 5, 6, 16, 20, 33])), draw(st.sampled_from([None, 5, 16, 70]))
    if positions == "rotary" and keys:
        keys += keys % 2
    odd = keys and values and not positions.startswith("sinusoidal")
    width = 13 if odd else heads * draw(st.sampled_from([4, 8, 10, 16]))
    return ModelSettings(
        width=width,
        heads=heads,
        key_value_heads=draw(st.sampled_from([n for n in (1, 2, 3, 6) if heads % n == 0])),
        key_width=keys,
        value_width=values,
        hidden=draw(st.sampled_from([7, 32, 50])),
        encoder_layers=draw(st.integers(1, 2)),
        decoder_layers=draw(st.integers(1, 3)),
        norm=draw(st.sampled_from(["pre", "post"])),
        norm_kind=draw(st.sampled_from(["layer", "rms"])),
        norm_epsilon=draw(st.sampled_from([1e-5, 1e-2])),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu-tanh", "silu", "swiglu"])),
        positions=positions,
        rotary_base=draw(st.sampled_from([100.0, 10_000.0])),
        max_length=draw(st.sampled_from([7, 12, 24])),
        tie=draw(st.sampled_from(["all", "output", "inputs", "none"])),
        scale_embedding=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draws models of any shape, with a few tokens or with more than the engine scores at once."""
    shape, vocabulary = draw(shapes()), draw(st.sampled_from([7, 40, 600]))
    return build(shape, vocabulary, decoder_only=draw(st.booleans()), seed=draw(st.integers(0, 99)))


@st.composite
def works(draw: st.DrawFn, model: Model, settings: st.SearchStrategy[DecodingSettings]) -> Work:
    """Draws batches of any lengths up to the longest, with limits that end some outputs."""
    longest = model.settings.max_length - 1
    count = draw(st.sampled_from([1, 2, 7, 20]))
    sources = some_sources(model, count, longest=longest, seed=draw(st.integers(0, 999)))
    most = longest + 1 + (20 if isinstance(model, Decoder) else 0)  # a decoder forgets and goes on
    dice = random.Random(draw(st.integers(0, 999)))
    return Work(sources, [dice.randint(1, most) for _ in sources], draw(settings))


COMMON: dict[str, Any] = {
    "penalty": st.sampled_from(["google", "power"]),
    "length_penalty": st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    "repetition_penalty": st.sampled_from([1.0, 1.0, 0.7, 1.5]),
    "alignment": st.booleans(),
    "batch_tokens": st.sampled_from([100, 8192]),  # of the reference: the native engine makes batches of its own
}
greedy = st.builds(DecodingSettings, beam=st.just(1), **COMMON)
beams = st.builds(
    lambda beam, others, **options: DecodingSettings(beam=beam, alternatives=min(others, beam - 1), **options),
    beam=st.sampled_from([2, 3, 5, 20]),
    others=st.sampled_from([0, 1, 4]),
    patience=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]),
    **COMMON,
)
drawn = st.builds(
    DecodingSettings,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 0, 1, 3]),
    top_p=st.sampled_from([1.0, 1.0, 0.8, 0.1]),
    min_p=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    alternatives=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 9),
    **COMMON,
)
