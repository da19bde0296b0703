"""The recurrent network computes what the equations say, whatever stands beside a sentence, step by step or at once."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from regard.model.observe import observe
from regard.model.recurrent import Recurrent
from tests.model.toys import VOCABULARY, exact, keep_lengths, same, some_tokens, toy_settings

every_kind = pytest.mark.parametrize("kind", ["lstm", "gru"])
attending_or_not = pytest.mark.parametrize("attends", [True, False])
kinds = st.sampled_from(["lstm", "gru"])


def network(kind: str, attends: bool = True, **changes: object) -> Recurrent:
    torch.manual_seed(0)
    settings = toy_settings(kind=kind, attends=attends, **changes)
    return exact(Recurrent(settings, VOCABULARY, VOCABULARY))


# The equations


def steps(layer: nn.Module, x: Tensor, state: Tensor, suffix: str = "") -> tuple[Tensor, Tensor]:
    """One direction of one layer over one sentence [T, D], from its state [P, D], token by token."""
    into, around, shift, turn = (
        getattr(layer, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    out, h = [], state[0]
    cell = state[-1]
    for token in x:
        theirs, own = into @ token + shift, around @ h + turn
        if isinstance(layer, nn.LSTM):
            enter, forget, new, leave = (theirs + own).chunk(4)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            h = leave.sigmoid() * cell.tanh()
        else:
            (r, z, n), (r_own, z_own, n_own) = theirs.chunk(3), own.chunk(3)
            stay = (z + z_own).sigmoid()
            h = (1 - stay) * (n + (r + r_own).sigmoid() * n_own).tanh() + stay * h
        out.append(h)
    return torch.stack(out), torch.stack([h, cell] if isinstance(layer, nn.LSTM) else [h])


def read(model: Recurrent, source: Tensor) -> Tensor:
    """[S] -> [S, D] memory."""
    x = model.source_embedding.tokens(source) * 4.0  # sqrt of the width
    nothing = torch.zeros(model.decoder.parts, 8, dtype=x.dtype)
    for i, layer in enumerate(model.encoder.layers):
        there, _ = steps(layer, x, nothing)
        back, _ = steps(layer, x.flip(0), nothing, "_reverse")
        y = torch.cat([there, back.flip(0)], -1)
        x = y if i == 0 else x + y
    return x


def look(model: Recurrent, x: Tensor, memory: Tensor) -> Tensor:
    """[T, D], [S, D] -> [T, D]: each state joined with what its heads found in the memory."""
    assert model.attention is not None
    assert model.join is not None
    query, key, value = (
        part(rows).chunk(4, -1)
        for part, rows in ((model.attention.query, x), (model.attention.key, memory), (model.attention.value, memory))
    )
    found = [(q @ k.T / math.sqrt(4)).softmax(-1) @ v for q, k, v in zip(query, key, value, strict=True)]
    return model.join(torch.cat([x, model.attention.output(torch.cat(found, -1))], -1)).tanh()


def written(model: Recurrent, source: Tensor, target: Tensor) -> Tensor:
    """[S] and [T] tokens -> [T, V] logits."""
    memory = read(model, source)
    ends = torch.cat([memory[-1, :8], memory[0, 8:]])
    first = model.bridge(ends).tanh().reshape(2, model.decoder.parts, 16)
    x = model.target_embedding.tokens(target) * 4.0
    for i, layer in enumerate(model.decoder.layers):
        y, _ = steps(layer, x, first[i])
        x = y if i == 0 else x + y
    return model.logits(look(model, x, memory) if model.attention is not None else x)


@every_kind
@attending_or_not
def test_it_computes_the_equations_step_by_step(kind: str, attends: bool) -> None:
    model, source, target = network(kind, attends), some_tokens(1, 6), some_tokens(1, 5, seed=1)
    assert same(model(source, target, None)[0], written(model, source[0], target[0]))


def test_a_new_lstm_keeps_what_it_has_read() -> None:
    model = Recurrent(toy_settings(kind="lstm"), VOCABULARY, VOCABULARY)
    layer = model.decoder.layers[0]
    gates = dict(layer.named_parameters())["bias_ih_l0"].chunk(4)  # input, forget, cell, output
    assert [bool((gate == 1).all()) for gate in gates] == [False, True, False, False]


# What holds for every batch


@given(kind=kinds, attends=st.booleans(), lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_a_sentence_alone_and_in_a_batch_gives_the_same(kind: str, attends: bool, lengths: list[int]) -> None:
    model, keep = network(kind, attends), keep_lengths(lengths)
    source, target = some_tokens(len(lengths), max(lengths)), some_tokens(len(lengths), 4, seed=1)
    together = model(source, target, keep)
    for row, length in enumerate(lengths):
        alone = model(source[row : row + 1, :length], target[row : row + 1], None)
        assert same(together[row : row + 1], alone)


@given(kind=kinds, attends=st.booleans(), cut=st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_with_a_cache_and_without_is_the_same(kind: str, attends: bool, cut: list[int]) -> None:
    model, keep = network(kind, attends), keep_lengths([5, 3])
    source, target = some_tokens(2, 5), some_tokens(2, sum(cut), seed=1)
    memory, cache = model.encode(source, keep), model.new_cache()
    pieces = [model.decode(part, memory, keep, cache) for part in target.split(cut, 1)]
    assert same(torch.cat(pieces, 1), model.decode(target, memory, keep))


@every_kind
@attending_or_not
def test_hypotheses_follow_their_rows_and_sentences(kind: str, attends: bool) -> None:
    model, source, target = network(kind, attends), some_tokens(3, 5), some_tokens(3, 4, seed=1)
    memory, cache = model.encode(source, None), model.new_cache()
    model.decode(target[:, :3], memory, None, cache)
    sentences = torch.tensor([2, 0])
    rows = torch.tensor([2, 2, 0, 0])  # two hypotheses of each sentence that is left
    cache.select(rows, sentences)
    last = model.decode(target[rows, 3:], memory[sentences], None, cache)
    assert same(last, model.states(source[rows], target[rows], None)[:, 3:])


@every_kind
def test_nothing_is_seen_of_the_future_and_all_of_the_past(kind: str) -> None:
    model, source, target = network(kind), some_tokens(1, 5), some_tokens(1, 6, seed=1)
    changed = target.clone()
    changed[0, 3] = (changed[0, 3] + 1) % VOCABULARY
    one, other = model(source, target, None), model(source, changed, None)
    assert same(one[:, :3], other[:, :3])
    assert not same(one[:, 3], other[:, 3])
    assert not same(one[:, 5], other[:, 5])


def test_what_it_looks_at_can_be_seen_where_it_looks() -> None:
    source, target = some_tokens(2, 5), some_tokens(2, 4, seed=1)
    model = network("gru")
    with observe(model) as trace:
        watched = model(source, target, None)
    assert same(watched, model(source, target, None))
    assert trace["attention.weights"].tensor.shape == (2, 4, 4, 5)


@every_kind
@pytest.mark.parametrize("tie", ["all", "output", "inputs", "none"])
def test_tables_are_one_where_they_are_to_be(kind: str, tie: str) -> None:
    model = network(kind, tie=tie)
    tables = {
        id(model.source_embedding.tokens.weight),
        id(model.target_embedding.tokens.weight),
        id(model.logits.weight),
    }
    assert len(tables) == {"all": 1, "none": 3}.get(tie, 2)
