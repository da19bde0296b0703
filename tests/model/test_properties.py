"""What holds for every shape of the model: order, padding, batches, caches, masks.

The models run in float64 (see `toys.exact`): equal means equal to 1e-9, and what leaks stands out.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.model.attention import Attention, Bias, Cache, attend, attend_readably, causal_mask, mask_bias
from regard.model.observe import observe
from regard.settings import ModelSettings
from tests.model.toys import (
    POSITIONS,
    VOCABULARY,
    exact,
    keep_lengths,
    model_settings,
    reader,
    same,
    scrambled,
    some_tokens,
    toy_settings,
    translator,
    writer,
)

lengths = st.lists(st.integers(1, 7), min_size=1, max_size=4)
seeds = st.integers(0, 1000)


@st.composite
def chunks(draw: st.DrawFn, longest: int = 8) -> list[int]:
    """How a text of two or more tokens is cut into pieces: [1, 1, 1] is one by one."""
    cut = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    assume(sum(cut) <= longest)
    return cut


def other_tokens(tokens: Tensor, seed: int) -> Tensor:
    """Tokens of which each differs from that of `tokens`."""
    return (tokens + 1 + some_tokens(len(tokens), tokens.shape[1], seed, VOCABULARY - 1)) % VOCABULARY


# Order


@given(settings=model_settings(), length=st.integers(2, 8), seed=seeds, data=st.data())
def test_no_position_sees_the_future(settings: ModelSettings, length: int, seed: int, data: st.DataObject) -> None:
    changed = data.draw(st.integers(1, length - 1))
    before = some_tokens(2, length, seed)
    after = torch.cat([before[:, :changed], other_tokens(before[:, changed:], seed)], 1)
    source = some_tokens(2, 5, seed + 1)
    translating, writing = translator(settings), writer(settings)
    for a, b in (
        (translating(source, before, None), translating(source, after, None)),
        (writing(before), writing(after)),
    ):
        assert same(a[:, :changed], b[:, :changed])
        assert not same(a[:, changed], b[:, changed])


@given(settings=model_settings(), length=st.integers(3, 8), seed=seeds)
def test_every_position_sees_the_past(settings: ModelSettings, length: int, seed: int) -> None:
    """The other half of causality: the first token reaches the last position."""
    before = some_tokens(2, length, seed)
    after = torch.cat([other_tokens(before[:, :1], seed), before[:, 1:]], 1)
    source = some_tokens(2, 5, seed + 1)
    translating, writing = translator(settings), writer(settings)
    assert not same(translating(source, before, None)[:, -1], translating(source, after, None)[:, -1])
    assert not same(writing(before)[:, -1], writing(after)[:, -1])


@given(settings=model_settings(), seed=seeds)
def test_every_position_of_the_target_sees_the_whole_source(settings: ModelSettings, seed: int) -> None:
    model = translator(settings)
    source, target = some_tokens(1, 4, seed), some_tokens(1, 3, seed + 1)
    logits = model(source, target, None)
    for position in range(4):
        changed = source.clone()
        changed[:, position] = other_tokens(source[:, position : position + 1], seed)[:, 0]
        other = model(changed, target, None)
        assert all(not same(logits[:, t], other[:, t]) for t in range(3))


@given(settings=model_settings(positions=("none",)), order=st.permutations(range(6)), seed=seeds)
def test_without_positions_permuting_the_source_permutes_the_memory(
    settings: ModelSettings, order: list[int], seed: int
) -> None:
    tokens, keep = some_tokens(2, 6, seed), keep_lengths([6, 4])
    model = translator(settings)
    permuted = model.encode(tokens[:, order], keep[:, order])
    assert same(permuted, model.encode(tokens, keep)[:, order])


@given(
    settings=model_settings(positions=tuple(kind for kind in POSITIONS if kind != "none")),
    order=st.permutations(range(6)),
    seed=seeds,
)
def test_with_positions_the_order_of_the_source_matters(settings: ModelSettings, order: list[int], seed: int) -> None:
    assume(order != sorted(order))
    tokens = (torch.arange(6) + seed)[None] % VOCABULARY  # all different
    model = reader(settings)
    assert not same(model(tokens[:, order], None), model(tokens, None)[:, order])


# Padding and batches


@given(settings=model_settings(), lengths=lengths, more=st.integers(1, 3), seed=seeds)
def test_what_stands_in_padding_does_not_matter(
    settings: ModelSettings, lengths: list[int], more: int, seed: int
) -> None:
    keep = F.pad(keep_lengths(lengths), (0, more))
    source = some_tokens(len(keep), keep.shape[1], seed)
    other = torch.where(keep, source, other_tokens(source, seed))
    target = some_tokens(len(lengths), 4, seed + 1)
    translating, reading = translator(settings), reader(settings)
    assert same(translating(source, target, keep), translating(other, target, keep))
    assert same(reading(source, keep)[keep], reading(other, keep)[keep])
    everything = torch.ones_like(keep)  # and it would matter if it were not marked as padding
    assert not same(translating(source, target, everything), translating(other, target, everything))


@given(settings=model_settings(), lengths=lengths, target_lengths=st.data(), seed=seeds)
def test_a_sentence_alone_equals_itself_padded_in_a_batch(
    settings: ModelSettings, lengths: list[int], target_lengths: st.DataObject, seed: int
) -> None:
    keep = keep_lengths(lengths)
    source = some_tokens(len(keep), keep.shape[1], seed)
    written = [target_lengths.draw(st.integers(1, 6)) for _ in lengths]
    target = some_tokens(len(lengths), max(written), seed + 1)
    translating, reading, writing = translator(settings), reader(settings), writer(settings)
    logits, states, continued = translating(source, target, keep), reading(source, keep), writing(target)
    for row, (s, t) in enumerate(zip(lengths, written, strict=True)):
        alone = source[row : row + 1, :s], target[row : row + 1, :t]
        assert same(translating(*alone, None)[0], logits[row, :t])
        assert same(reading(alone[0], None)[0], states[row, :s])
        assert same(writing(alone[1])[0], continued[row, :t])


@given(settings=model_settings(), batch=st.integers(2, 5), seed=seeds)
def test_a_batch_of_n_equals_n_batches_of_one(settings: ModelSettings, batch: int, seed: int) -> None:
    model = translator(settings)
    keep = torch.rand(batch, 5, generator=torch.Generator().manual_seed(seed)) > 0.3  # holes are allowed
    keep[:, 0] = True
    source, target = some_tokens(batch, 5, seed), some_tokens(batch, 4, seed + 1)
    rows = [model(source[i : i + 1], target[i : i + 1], keep[i : i + 1]) for i in range(batch)]
    assert same(model(source, target, keep), torch.cat(rows))


# Caches


@given(settings=model_settings(), cut=chunks(), seed=seeds)
def test_cached_equals_uncached(settings: ModelSettings, cut: list[int], seed: int) -> None:
    keep = keep_lengths([5, 3])
    source, target = some_tokens(2, 5, seed), some_tokens(2, sum(cut), seed + 1)
    model = translator(settings)
    memory, cache = model.encode(source, keep), model.new_cache()
    pieces = [model.decode(piece, memory, keep, cache) for piece in target.split(cut, 1)]
    assert same(model.logits(torch.cat(pieces, 1)), model(source, target, keep))
    assert cache.length == sum(cut)


@given(settings=model_settings(), cut=chunks(), seed=seeds)
def test_cached_equals_uncached_in_the_decoder_alone(settings: ModelSettings, cut: list[int], seed: int) -> None:
    tokens = some_tokens(2, sum(cut), seed)
    model = writer(settings)
    cache = model.new_cache()
    pieces = [model(piece, cache) for piece in tokens.split(cut, 1)]
    assert same(torch.cat(pieces, 1), model(tokens))
    assert cache.length == sum(cut)


def test_memory_is_projected_once_per_sentence() -> None:
    model = translator(toy_settings())
    memory, cache = model.encode(some_tokens(1, 5), None), model.new_cache()
    first = model.decode(some_tokens(1, 1), memory, None, cache)
    kept = [layer.keys for layer in cache.cross_attention]
    nonsense = torch.full_like(memory, torch.nan)
    model.decode(some_tokens(1, 1, 1), nonsense, None, cache)
    assert first.isfinite().all()
    assert all(layer.keys is keys for layer, keys in zip(cache.cross_attention, kept, strict=True))


@given(settings=model_settings(), cut=chunks(), hypotheses=st.integers(2, 4), seed=seeds)
def test_hypotheses_that_share_a_memory_equal_a_repeated_memory(
    settings: ModelSettings, cut: list[int], hypotheses: int, seed: int
) -> None:
    keep = keep_lengths([5, 3, 4])
    source, target = some_tokens(3, 5, seed), some_tokens(3 * hypotheses, sum(cut), seed + 1)
    model = translator(settings)
    memory, cache = model.encode(source, keep), model.new_cache()
    shared = [model.decode(piece, memory, keep, cache) for piece in target.split(cut, 1)]
    memory, keep = (t.repeat_interleave(hypotheses, 0) for t in (memory, keep))
    assert same(torch.cat(shared, 1), model.decode(target, memory, keep))
    assert all(len(layer.keys) == 3 for layer in cache.cross_attention)


@given(settings=model_settings(), rows=st.lists(st.integers(0, 5), min_size=1, max_size=6), seed=seeds)
def test_selected_hypotheses_go_on_as_if_they_had_been_alone(
    settings: ModelSettings, rows: list[int], seed: int
) -> None:
    """Six hypotheses of one sentence; some are kept, doubled or put in another order."""
    keep = keep_lengths([5])
    source, target = some_tokens(1, 5, seed), some_tokens(6, 3, seed + 1)
    following = some_tokens(len(rows), 2, seed + 2)
    model = translator(settings)
    memory, cache = model.encode(source, keep), model.new_cache()
    model.decode(target, memory, keep, cache)
    cache.select(torch.tensor(rows))
    states = model.decode(following, memory, keep, cache)
    whole = torch.cat([target[rows], following], 1)
    memory, keep = (t.repeat_interleave(len(rows), 0) for t in (memory, keep))
    assert same(states, model.decode(whole, memory, keep)[:, 3:])


def test_selected_sentences_keep_their_own_memory() -> None:
    """Of three sentences with two hypotheses each, the last and the first go on, in that order."""
    model = translator(toy_settings())
    keep = keep_lengths([5, 3, 4])
    source, target = some_tokens(3, 5), some_tokens(6, 3, 1)
    memory, cache = model.encode(source, keep), model.new_cache()
    model.decode(target, memory, keep, cache)
    rows, sentences, following = torch.tensor([5, 4, 0, 0]), torch.tensor([2, 0]), some_tokens(4, 1, 2)
    cache.select(rows, sentences)
    states = model.decode(following, memory[sentences], keep[sentences], cache)
    owners = torch.tensor([2, 2, 0, 0])
    whole = torch.cat([target[rows], following], 1)
    assert same(states, model.decode(whole, memory[owners], keep[owners])[:, 3:])


def test_selecting_from_an_empty_cache_leaves_it_empty() -> None:
    cache = Cache(2)
    cache.select(torch.tensor([1, 0]), torch.tensor([0]))
    assert cache.length == 0


# Masks


@given(settings=model_settings(), seed=seeds)
def test_weights_are_probabilities_and_zero_where_nobody_may_look(settings: ModelSettings, seed: int) -> None:
    keep = keep_lengths([5, 2])
    model = translator(settings)
    with observe(model) as trace:
        model(some_tokens(2, 5, seed), some_tokens(2, 4, seed + 1), keep)
    may_look = {
        "encoder.layers.0.self_attention": keep[:, None, None, :].expand(2, settings.heads, 5, 5),
        "decoder.layers.0.self_attention": causal_mask(4).expand(2, settings.heads, 4, 4),
        "decoder.layers.0.cross_attention": keep[:, None, None, :].expand(2, settings.heads, 4, 5),
    }
    for name, mask in may_look.items():
        weights = trace[f"{name}.weights"].tensor
        assert same(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert (weights[~mask] == 0).all()
        assert (weights[mask] > 0).all()


@given(settings=model_settings(), seed=seeds)
def test_a_row_that_may_look_nowhere_is_finite(settings: ModelSettings, seed: int) -> None:
    model = translator(settings)
    keep = keep_lengths([4, 0])
    logits = model(some_tokens(2, 4, seed), some_tokens(2, 3, seed + 1), keep)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_mask_becomes_zero_and_minus_infinity() -> None:
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    expected = torch.tensor([[0, -math.inf], [0, 0], [0, 0]])
    assert torch.equal(mask_bias(mask, torch.float32), expected)
    assert mask_bias(mask, torch.bfloat16).dtype is torch.bfloat16


@given(length=st.integers(1, 6), start=st.integers(0, 6))
def test_the_causal_mask_lets_each_position_see_itself_and_what_came_before(length: int, start: int) -> None:
    mask = causal_mask(length, start)
    assert mask.tolist() == [[s <= start + t for s in range(start + length)] for t in range(length)]


# The fast path


@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=st.sampled_from([1, 2, 7, 64, 90]),
    memory=st.sampled_from([1, 3, 64, 100]),
    width=st.sampled_from([1, 4, 8]),
    value_width=st.sampled_from([1, 4, 8]),
    masked=st.sampled_from(["nothing", "padding", "future", "causal"]),
    short=st.sampled_from([0, 64 * 64]),
    seed=seeds,
)
def test_fast_attention_equals_the_readable_one(
    batch: int, heads: int, length: int, memory: int, width: int, value_width: int, masked: str, short: int, seed: int
) -> None:
    """Above and below SHORT scores, values and gradients."""
    generator = torch.Generator().manual_seed(seed)
    memory = length if masked == "causal" else memory

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    query, key, value = (
        numbers(batch, heads, length, width),
        numbers(batch, heads, memory, width),
        numbers(batch, heads, memory, value_width),
    )
    biases: dict[str, Bias] = {
        "nothing": None,
        "causal": "causal",
        "padding": mask_bias(torch.rand(batch, 1, 1, memory, generator=generator) > 0.4, torch.float64),
        "future": mask_bias(torch.ones(1, 1, length, memory).tril(memory - length) > 0, torch.float64),
    }
    bias = biases[masked]
    with mock.patch("regard.model.attention.SHORT", short):
        fast, readable = attend(query, key, value, bias), attend_readably(query, key, value, bias)
    assert same(fast, readable)
    direction = torch.randn(fast.shape, generator=generator, dtype=torch.float64)
    gradients = [torch.autograd.grad(x, (query, key, value), direction) for x in (fast, readable)]
    assert all(same(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(("length", "fused"), [(64, False), (65, True)])
def test_long_texts_take_the_fused_path(length: int, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above and below rely on, to have seen both paths."""
    calls = []

    def counted(*arguments: Any) -> Tensor:
        calls.append(arguments)
        return torch.zeros(1, 1, length, 4)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    monkeypatch.setattr("regard.model.attention.SHORT", 64 * 64)
    x = torch.randn(1, 1, length, 4)
    attend(x, x, x, None)
    assert bool(calls) == fused


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_properties_hold_on_the_fused_path(norm: Any) -> None:
    """Causality, padding and the cache once more, with texts that are long."""
    model = translator(toy_settings(norm=norm, max_length=128, key_value_heads=2, value_width=3))
    keep = keep_lengths([90, 70])
    source, target = some_tokens(2, 90), some_tokens(2, 80, 1)
    logits = model(source, target, keep)
    other = torch.where(keep, source, other_tokens(source, 2))
    later = torch.cat([target[:, :75], other_tokens(target[:, 75:], 3)], 1)
    changed = model(other, later, keep)
    assert same(logits[:, :75], changed[:, :75])
    assert not same(logits[:, 75:], changed[:, 75:])
    memory, cache = model.encode(source, keep), model.new_cache()
    pieces = [model.decode(piece, memory, keep, cache) for piece in target.split([70, 1, 1, 8], 1)]
    assert same(model.logits(torch.cat(pieces, 1)), logits)
    assert same(model(source[1:, :70], target[1:], None), logits[1:])


@pytest.mark.parametrize("length", [6, 70])
def test_mixed_precision_stays_near_full_precision(length: int) -> None:
    """On both paths, masks and caches included: autocast casts the products, not the bias that we add."""
    settings = toy_settings(positions="rotary", max_length=128)
    model = scrambled(translator(settings).float())
    keep = keep_lengths([length, length - 2])
    source, target = some_tokens(2, length), some_tokens(2, length, 1)
    full = model(source, target, keep)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(source, target, keep)
        memory, cache = model.encode(source, keep), model.new_cache()
        pieces = [model.decode(piece, memory, keep, cache) for piece in target.split([length - 1, 1], 1)]
        cached = model.logits(torch.cat(pieces, 1))
    assert (mixed - full).abs().mean() < 0.05 * full.std()
    assert (cached - full).abs().mean() < 0.05 * full.std()


def test_memory_and_queries_may_have_different_lengths_and_a_bias_per_row() -> None:
    """A bias of its own for each query position, as packed texts need it."""
    ours = exact(Attention(toy_settings()))
    x, memory = torch.randn(2, 3, 16).double(), torch.randn(2, 5, 16).double()
    mask = torch.rand(2, 1, 3, 5) > 0.5
    mask[..., 0] = True
    together = ours(x, memory, mask_bias(mask, torch.float64))
    for row in range(3):
        alone = ours(x[:, row : row + 1], memory, mask_bias(mask[:, :, row : row + 1], torch.float64))
        assert same(together[:, row : row + 1], alone)
