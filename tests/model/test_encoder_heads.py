"""Documents side by side do not see each other, and the heads of an encoder compute what BERT's compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from regard.model.transformer import Encoder, Pooler, document_bias
from regard.settings import ModelSettings
from tests.model.foreign import copy_bert, copy_weights, put
from tests.model.toys import VOCABULARY, exact, keep_lengths, same, scrambled, some_tokens, toy_settings, writer

# Packed documents

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@pytest.mark.parametrize("positions", ["none", "rotary"])
@given(sizes=lengths)
def test_a_packed_document_gets_what_it_gets_alone(positions: str, sizes: list[int]) -> None:
    """Without positions, and with positions that only tell distances."""
    model = writer(toy_settings(positions=positions, key_value_heads=2))
    tokens = some_tokens(1, sum(sizes))
    numbers = torch.repeat_interleave(torch.arange(len(sizes)) + 7, torch.tensor(sizes))[None]
    packed = model.states(tokens, documents=numbers)
    alone = torch.cat([model.states(part) for part in tokens.split(sizes, 1)], 1)
    assert same(packed, alone, 1e-5 if positions == "rotary" else 1e-9)  # the angles are float32
    if len(sizes) > 1:
        assert not same(packed, model.states(tokens), 1e-5)  # the numbers do matter


def test_each_row_has_its_own_documents() -> None:
    model = writer(toy_settings(positions="rotary"))
    tokens = some_tokens(2, 6)
    numbers = torch.tensor([[0, 0, 1, 1, 1, 1], [5, 5, 5, 5, 6, 7]])
    found = model.states(tokens, documents=numbers)
    for row in range(2):
        assert same(found[row : row + 1], model.states(tokens[row : row + 1], documents=numbers[row : row + 1]))
    assert same(found[0, 2:], model.states(tokens[:1, 2:])[0], 1e-5)


def test_one_document_is_the_usual_case() -> None:
    model = writer(toy_settings(positions="learned"))
    tokens = some_tokens(3, 8)
    assert same(model.states(tokens, documents=torch.zeros(3, 8, dtype=torch.long)), model.states(tokens))


@given(numbers=st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_who_may_look_at_whom(numbers: list[int]) -> None:
    documents = torch.tensor([sorted(numbers)])
    bias = document_bias(documents, torch.zeros(1, len(numbers), 4))
    allowed = bias[0, 0] == 0
    for i, mine in enumerate(sorted(numbers)):
        for j, theirs in enumerate(sorted(numbers)):
            assert bool(allowed[i, j]) == (j <= i and mine == theirs)


# BERT

SHAPE: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-2,  # far from the default, to see that it is heeded
    "initializer_range": 0.2,
}
BERT: dict[str, Any] = {
    "activation": "gelu",
    "positions": "learned",
    "max_length": 12,
    "scale_embedding": False,
    "embedding_norm": True,
    "segments": 2,
    "norm_epsilon": 1e-2,
    "tie": "output",
    "pooler": "tanh",
}
KEEP = keep_lengths([5, 7, 2])
TOKENS = some_tokens(3, 7, vocabulary=30)
SEGMENTS = (torch.arange(7) > 2).long().expand(3, -1)
INPUTS = {"input_ids": TOKENS, "attention_mask": KEEP.long(), "token_type_ids": SEGMENTS}


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_filling_and_judging_equal_bert() -> None:
    theirs: Any = scrambled(BertForPreTraining(BertConfig(**SHAPE)))
    ours = Encoder(toy_settings(**BERT, next_sentence=True), 30, fills=True).eval()
    assert ours.fill is not None
    assert ours.pooler is not None
    assert ours.follows is not None
    copy_bert(ours, theirs.bert)
    copy_weights(ours.pooler.dense, theirs.bert.pooler.dense)
    copy_weights(ours.fill.dense, theirs.cls.predictions.transform.dense)
    copy_weights(ours.fill.norm, theirs.cls.predictions.transform.LayerNorm)
    put(ours.fill.logits.bias, theirs.cls.predictions.bias)
    copy_weights(ours.follows, theirs.cls.seq_relationship)
    expected = theirs(**INPUTS)
    states = ours(TOKENS, KEEP, SEGMENTS)
    assert_same(ours.fill(states), expected.prediction_logits)
    assert_same(ours.fill.logits(ours.fill.transform(states)), expected.prediction_logits)
    assert_same(ours.follows(ours.pool(states, None)), expected.seq_relationship_logits)


def test_labelling_equals_bert() -> None:
    config: Any = BertConfig(**SHAPE)
    config.num_labels = 5
    theirs: Any = scrambled(BertForSequenceClassification(config))
    ours = Encoder(toy_settings(**BERT), 30, labels=5).eval()
    assert ours.label is not None
    assert ours.pooler is not None
    copy_bert(ours, theirs.bert)
    copy_weights(ours.pooler.dense, theirs.bert.pooler.dense)
    copy_weights(ours.label, theirs.classifier)
    assert_same(ours.label(ours.pool(ours(TOKENS, KEEP, SEGMENTS), KEEP)), theirs(**INPUTS).logits)


# Shapes


def test_an_encoder_has_the_heads_it_is_asked_for() -> None:
    bare = Encoder(toy_settings(), VOCABULARY)
    assert (bare.pooler, bare.fill, bare.follows, bare.label) == (None, None, None, None)
    states = bare(TOKENS % VOCABULARY, None)
    assert torch.equal(bare.pool(states, None), states[:, 0])
    full = Encoder(toy_settings(pooler="relu", next_sentence=True), VOCABULARY, fills=True, labels=3)
    assert full.label is not None
    assert full.label.out_features == 3
    assert full.follows is not None


@pytest.mark.parametrize("tie", ["all", "output", "inputs", "none"])
def test_the_head_that_fills_shares_the_table_of_tokens_where_it_should(tie: str) -> None:
    model = Encoder(toy_settings(tie=tie), VOCABULARY, fills=True)
    assert model.fill is not None
    assert (model.fill.logits.weight is model.embedding.tokens.weight) == (tie in ("all", "output"))


@pytest.mark.parametrize("kind", ["tanh", "relu"])
def test_a_pooler_reads_the_first_position_alone(kind: str) -> None:
    model = exact(Encoder(toy_settings(pooler=kind), VOCABULARY))
    states = torch.randn(2, 4, 16, dtype=torch.float64)
    other = states.clone()
    other[:, 1:] = 0
    assert isinstance(model.pooler, Pooler)
    assert torch.equal(model.pool(states, None), model.pool(other, None))
    plain = states[:, 0] @ model.pooler.dense.weight.T + model.pooler.dense.bias
    assert same(model.pool(states, None), plain.tanh() if kind == "tanh" else plain.clamp(min=0))


def test_the_mean_leaves_padding_out() -> None:
    torch.manual_seed(0)
    settings = ModelSettings(width=8, heads=2, hidden=8, encoder_layers=1, pooler="mean", dropout=0.0)
    model = Encoder(settings, 20, labels=2).eval()
    short, long = torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 7, 0, 0]])
    keep = torch.tensor([[True, True, True, False, False]])
    states = model(short, None)
    torch.testing.assert_close(model.pool(states, None), states.mean(1))
    torch.testing.assert_close(model.pool(model(long, keep), keep), model.pool(states, None))
    assert model.pooler is None
