from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import ModelSettings
from tests.model.toys import some_tokens, toy_settings

SHAPE: dict[str, Any] = {
    "width": 128,
    "heads": 4,
    "hidden": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
}
VOCABULARY = 500


def fresh(**changes: Any) -> EncoderDecoder:
    return EncoderDecoder(ModelSettings(**SHAPE | changes), VOCABULARY, VOCABULARY).eval()


@pytest.mark.parametrize("changes", [{}, {"key_value_heads": 2, "value_width": 8, "activation": "swiglu"}])
def test_linear_maps_are_uniform_after_glorot(changes: dict[str, Any]) -> None:
    model = fresh(**changes)
    maps = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not model.logits]
    assert len(maps) == (2 + 4) * 4 + 4 * (3 if "activation" in changes else 2)
    for name, linear in maps:
        rows, columns = linear.weight.shape
        limit = math.sqrt(6 / (rows + columns))
        assert linear.weight.abs().max() <= limit, name
        assert linear.weight.abs().max() > 0.99 * limit, name
        assert linear.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.05), name
        assert linear.weight.mean().item() == pytest.approx(0, abs=0.05 * limit), name


def test_biases_are_zero_and_norms_one_and_zero() -> None:
    model = fresh(output_bias=True, embedding_norm=True, norm="pre")
    biases = [m.bias for m in model.modules() if isinstance(m, nn.Linear)]
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 2 * 3 + 2 + 2
    assert all((bias == 0).all() for bias in biases)
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


@pytest.mark.parametrize("tie", ["all", "output", "inputs", "none"])
@pytest.mark.parametrize("scale_embedding", [True, False])
def test_tables_are_normal_with_the_stated_deviation(tie: Any, scale_embedding: bool) -> None:
    model = fresh(tie=tie, scale_embedding=scale_embedding, positions="learned", segments=50)
    deviation = 128**-0.5 if scale_embedding else 0.02
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.positions is not None
        assert embedding.segments is not None
        for table in (
            embedding.tokens.weight,
            embedding.positions.get_parameter("table"),
            embedding.segments.weight,
        ):
            assert table.std().item() == pytest.approx(deviation, rel=0.05)
            assert table.mean().item() == pytest.approx(0, abs=0.05 * deviation)
    assert model.logits.weight.std().item() == pytest.approx(deviation, rel=0.05)
    assert model.logits.weight.abs().max() > 3 * deviation  # normal, not uniform


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
@pytest.mark.parametrize("tie", ["all", "none"])
def test_embeddings_and_logits_start_at_size_one(norm: Any, norm_kind: Any, tie: Any) -> None:
    model = fresh(norm=norm, norm_kind=norm_kind, tie=tie)
    source, target = some_tokens(8, 20, 1, VOCABULARY), some_tokens(8, 20, 2, VOCABULARY)
    embedded = model.source_embedding.tokens(source) * model.source_embedding.scale
    assert embedded.std().item() == pytest.approx(1, abs=0.05)
    assert model(source, target, None).std().item() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("tie", "tables"),
    [("all", 1), ("output", 2), ("inputs", 2), ("none", 3)],
)
def test_tied_tables_are_one_tensor(tie: Any, tables: int) -> None:
    model = fresh(tie=tie)
    source, target = model.source_embedding.tokens.weight, model.target_embedding.tokens.weight
    output = model.logits.weight
    assert len({id(table) for table in (source, target, output)}) == tables
    assert (source is target) == (tie in ("all", "inputs"))
    assert (target is output) == (tie in ("all", "output"))
    assert len({table.data_ptr() for table in (source, target, output)}) == tables


@pytest.mark.parametrize(("tie", "tied"), [("all", True), ("output", True), ("inputs", False), ("none", False)])
def test_a_decoder_alone_ties_its_two_tables(tie: Any, tied: bool) -> None:
    model = Decoder(toy_settings(tie=tie), 10)
    assert (model.logits.weight is model.embedding.tokens.weight) == tied


def test_tied_tables_stay_one_through_a_step_of_training_and_a_saved_state() -> None:
    model = fresh(tie="all")
    model(some_tokens(1, 4), some_tokens(1, 4), None).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    other = fresh(tie="all")
    other.load_state_dict(model.state_dict())
    assert other.logits.weight is other.source_embedding.tokens.weight
    assert torch.equal(other.logits.weight, model.source_embedding.tokens.weight)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("tie", ["all", "output", "inputs", "none"])
def test_the_base_model_of_the_paper_has_63_million_weights(tie: Any) -> None:
    vocabulary, d, hidden, layers = 37_000, 512, 2048, 6
    with torch.device("meta"):  # shapes without numbers
        model = EncoderDecoder(ModelSettings(tie=tie), vocabulary, vocabulary)
    attention = 4 * (d * d + d)
    feed_forward = d * hidden + hidden + hidden * d + d
    norm = 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    tables = {"all": 1, "output": 2, "inputs": 2, "none": 3}[tie]
    assert count(model) == tables * vocabulary * d + layers * (encoder + decoder)
    if tie == "all":
        assert 63e6 < count(model) < 65e6


def test_bert_base_and_gpt2_have_their_known_sizes() -> None:
    """109.5 and 124.4 million as published, BERT counted with its pooler, which ours has not."""
    bert = ModelSettings(
        width=768,
        heads=12,
        hidden=3072,
        encoder_layers=12,
        positions="learned",
        max_length=512,
        segments=2,
        embedding_norm=True,
    )
    gpt2 = ModelSettings(
        width=768, heads=12, hidden=3072, decoder_layers=12, norm="pre", positions="learned", max_length=1024
    )
    with torch.device("meta"):
        assert count(Encoder(bert, 30_522)) + 768 * 768 + 768 == 109_482_240
        assert count(Decoder(gpt2, 50_257)) == 124_439_808


def test_two_models_start_differently_and_a_seed_makes_them_equal() -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(fresh().state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    tables = "source_embedding.tokens.weight", "encoder.layers.0.self_attention.query.weight"
    assert not any(torch.equal(states[0][name], states[2][name]) for name in tables)
