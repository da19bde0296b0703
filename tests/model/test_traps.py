"""Slips that public write-ups of the Transformer contain, each shown to be different from what we compute.

Every test computes the right thing for one token with plain loops, and the slip beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.model.attention import Attention, attend, causal_mask, join_heads, mask_bias, split_heads
from regard.model.layers import FeedForward, Layer, Residual
from regard.model.observe import observe
from regard.model.positions import sinusoids
from regard.model.transformer import EncoderDecoder
from tests.model.toys import exact, keep_lengths, same, some_tokens, toy_settings, translator

Vector = list[float]
WIDTH, HEADS, HEAD_WIDTH = 16, 4, 4
LENGTH = 5


def apply(linear: nn.Linear, x: Vector) -> Vector:
    return [
        sum(w * v for w, v in zip(row, x, strict=True)) + b
        for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
    ]


def softmax(scores: Vector) -> Vector:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def look(module: Attention, x: Vector, visible: Iterable[Vector], scale: float = HEAD_WIDTH**-0.5) -> Vector:
    """Attention of one token, head by head and neighbour by neighbour."""
    query = apply(module.query, x)
    keys = [apply(module.key, y) for y in visible]
    values = [apply(module.value, y) for y in visible]
    context: Vector = []
    for head in range(HEADS):
        own = range(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        weights = softmax([sum(query[i] * key[i] for i in own) * scale for key in keys])
        context += [sum(w * value[i] for w, value in zip(weights, values, strict=True)) for i in own]
    return apply(module.output, context)


def normalise(norm: nn.Module, x: Vector) -> Vector:
    assert isinstance(norm, nn.LayerNorm)
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    scale, shift = norm.weight.tolist(), norm.bias.tolist()
    return [(v - mean) / deviation * g + b for v, g, b in zip(x, scale, shift, strict=True)]


def feed_forward(module: FeedForward, x: Vector) -> Vector:
    return apply(module.fall, [max(0.0, v) for v in apply(module.rise, x)])


def add(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def equal(tensor: Tensor, vector: Vector) -> bool:
    return same(tensor, torch.tensor(vector, dtype=torch.float64))


def attention_and_input(**changes: Any) -> tuple[Attention, Tensor]:
    module = exact(Attention(toy_settings(**changes)))
    return module, torch.randn(1, LENGTH, WIDTH).double()


def project(module: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return module.query(x), module.key(x), module.value(x)


def test_attention_is_between_positions_and_not_between_heads() -> None:
    """`view(B, L, h, d_k)` without moving the head axis: each position then attends to its own heads."""
    module, x = attention_and_input()
    ours = module(x, x, None)
    for t in range(LENGTH):
        assert equal(ours[0, t], look(module, x[0, t].tolist(), x[0].tolist()))
    query, key, value = (y.view(1, LENGTH, HEADS, HEAD_WIDTH) for y in project(module, x))
    slip = module.output(attend(query, key, value, None).reshape(1, LENGTH, WIDTH))
    assert not same(ours, slip)


def test_heads_are_cut_from_the_width_and_not_from_the_length() -> None:
    """`view(B, h, L, d_k)` straight away: a head then holds pieces of several positions."""
    x = torch.arange(2 * 3 * 8).view(2, 3, 8)
    heads = split_heads(x, 4)
    for b in range(2):
        for t in range(3):
            for h in range(4):
                assert heads[b, h, t].tolist() == x[b, t, 2 * h : 2 * h + 2].tolist()
    assert not torch.equal(heads, x.view(2, 4, 3, 2))


def test_heads_are_rejoined_position_by_position() -> None:
    """`view` of [B, h, L, d_k] as [B, L, d] without moving the axis back: positions get mixed."""
    module, x = attention_and_input()
    ours = module(x, x, None)
    query, key, value = (split_heads(y, HEADS) for y in project(module, x))
    context = attend(query, key, value, None)
    assert same(join_heads(context), torch.cat([context[:, head] for head in range(HEADS)], -1))
    slip = module.output(context.reshape(1, LENGTH, WIDTH))
    assert not same(ours, slip)
    assert equal(ours[0, 1], look(module, x[0, 1].tolist(), x[0].tolist()))
    x = torch.randn(2, 3, 4, 5).transpose(0, 1)  # no view of these numbers exists
    assert torch.equal(join_heads(x)[1, 2], x[1, :, 2].reshape(-1))


def test_scores_are_scaled_by_the_width_of_a_head() -> None:
    """sqrt(d_model) is the slip where there are several heads."""
    module, x = attention_and_input()
    ours = module(x, x, None)[0, 2]
    token, neighbours = x[0, 2].tolist(), x[0].tolist()
    assert equal(ours, look(module, token, neighbours, 1 / math.sqrt(HEAD_WIDTH)))
    assert not equal(ours, look(module, token, neighbours, 1 / math.sqrt(WIDTH)))
    assert not equal(ours, look(module, token, neighbours, 1.0))


def test_the_width_that_scales_is_that_of_the_keys() -> None:
    """With d_k unlike d_v and unlike d / h, it is d_k."""
    module, x = attention_and_input(key_width=6, value_width=3)
    query, key, value = (split_heads(y, HEADS) for y in project(module, x))
    right, *slips = (
        module.output(join_heads((query @ key.mT / math.sqrt(width)).softmax(-1) @ value))
        for width in (6, 3, WIDTH // HEADS, WIDTH)
    )
    ours = module(x, x, None)
    assert same(ours, right)
    assert not any(same(ours, slip) for slip in slips)


def test_the_causal_mask_comes_before_the_softmax() -> None:
    """Applied after it, the weights of a row no longer sum to 1."""
    module, x = attention_and_input()
    with observe(module) as trace:
        ours = module(x, x, mask_bias(causal_mask(LENGTH), x.dtype))
    for t in range(LENGTH):
        assert equal(ours[0, t], look(module, x[0, t].tolist(), x[0, : t + 1].tolist()))
    weights = trace["weights"].tensor
    late = trace["scaled"].tensor.softmax(-1) * causal_mask(LENGTH)
    assert same(weights.sum(-1), torch.ones(1, HEADS, LENGTH).double())
    assert (late.sum(-1)[..., :-1] < 0.999).all()
    slip = module.output(join_heads(late @ trace["value"].tensor))
    assert not same(ours, slip)


def test_post_norm_adds_before_it_normalises() -> None:
    """LayerNorm(x + f(x)), not x + LayerNorm(f(x))."""
    settings = toy_settings(norm="post")
    residual, sublayer = exact(Residual(settings)), exact(FeedForward(settings), 1)
    x = torch.randn(1, 1, WIDTH).double()
    ours, token = residual(x, sublayer)[0, 0], x[0, 0].tolist()
    assert equal(ours, normalise(residual.norm, add(token, feed_forward(sublayer, token))))
    assert not equal(ours, add(token, normalise(residual.norm, feed_forward(sublayer, token))))


def test_pre_norm_leaves_the_residual_alone() -> None:
    """x + f(LayerNorm(x)), not LayerNorm(x) + f(LayerNorm(x)), nor x + LayerNorm(f(x))."""
    settings = toy_settings(norm="pre")
    residual, sublayer = exact(Residual(settings)), exact(FeedForward(settings), 1)
    x = torch.randn(1, 1, WIDTH).double()
    ours, token = residual(x, sublayer)[0, 0], x[0, 0].tolist()
    normed = normalise(residual.norm, token)
    assert equal(ours, add(token, feed_forward(sublayer, normed)))
    assert not equal(ours, add(normed, feed_forward(sublayer, normed)))
    assert not equal(ours, add(token, normalise(residual.norm, feed_forward(sublayer, token))))


def test_a_decoder_layer_computed_with_loops() -> None:
    """Causal self-attention, then cross-attention to the memory, then feed-forward, in this order."""
    layer = exact(Layer(toy_settings(), cross=True, rotary=None))
    assert layer.cross_attention is not None
    assert layer.cross_residual is not None
    x, memory = torch.randn(1, 3, WIDTH).double(), torch.randn(1, LENGTH, WIDTH).double()
    ours = layer(x, mask_bias(causal_mask(3), x.dtype), memory, None)[0, 1]
    token = x[0, 1].tolist()
    seen = look(layer.self_attention, token, x[0, :2].tolist())
    token = normalise(layer.self_residual.norm, add(token, seen))
    read = look(layer.cross_attention, token, memory[0].tolist())
    token = normalise(layer.cross_residual.norm, add(token, read))
    thought = feed_forward(layer.feed_forward, token)
    assert equal(ours, normalise(layer.feed_forward_residual.norm, add(token, thought)))


def test_the_shifted_target_goes_to_the_decoder_and_the_source_to_the_encoder() -> None:
    model = translator(toy_settings(tie="none"))
    source, target = some_tokens(1, 5), some_tokens(1, 4, 1)
    with observe(model) as trace:
        ours = model(source, target, None)
    scale = math.sqrt(WIDTH)
    for embedding, tokens in (("source_embedding", source), ("target_embedding", target)):
        table = model.get_submodule(embedding).get_parameter("tokens.weight")
        read = trace[f"{embedding}.tokens"].tensor[0]
        for position, token in enumerate(tokens[0].tolist()):
            assert equal(read[position], [scale * number for number in table[token].tolist()])
    assert same(ours, model.logits(model.decode(target, model.encode(source, None), None)))
    slip = model.logits(model.decode(target, model.encode(target, None), None))
    assert not same(ours, slip)
    assert not same(ours, model(target, source, None)[:, :4])


def test_source_and_target_have_vocabularies_of_their_own() -> None:
    """A target token past the source's vocabulary, and the other way round, is read where it belongs."""
    model = EncoderDecoder(toy_settings(tie="none"), 30, 11)
    assert model(torch.tensor([[29, 3]]), torch.tensor([[10, 2, 1]]), None).shape == (1, 3, 11)
    model = EncoderDecoder(toy_settings(tie="none"), 11, 30)
    assert model(torch.tensor([[10, 3]]), torch.tensor([[29, 2, 1]]), None).shape == (1, 3, 30)


def test_the_exponent_of_a_position_is_two_i_over_d() -> None:
    """Garbled in print as i/d, 2(i-1)/d, and with a wavelength of its own for each cosine."""
    ours = sinusoids(LENGTH, WIDTH).double()

    def table(sine_exponent: Any, cosine_exponent: Any) -> Tensor:
        rows = [
            [
                wave(position / 10000 ** exponent(i))
                for i in range(WIDTH // 2)
                for wave, exponent in ((math.sin, sine_exponent), (math.cos, cosine_exponent))
            ]
            for position in range(LENGTH)
        ]
        return torch.tensor(rows, dtype=torch.float64)

    def right(i: int) -> float:
        return 2 * i / WIDTH

    assert same(ours, table(right, right), 1e-6)
    for slip in (lambda i: i / WIDTH, lambda i: 2 * (i - 1) / WIDTH, lambda i: 2 / WIDTH, lambda i: 2 * i):
        assert not same(ours, table(slip, slip), 1e-6)
    assert not same(ours, table(right, lambda i: (2 * i + 1) / WIDTH), 1e-6)


def test_padding_changes_nothing() -> None:
    """A token looks at real tokens only; scores that are set to 0 or weights cut afterwards are slips."""
    module, x = attention_and_input()
    keep = keep_lengths([3, LENGTH])[:1]
    with observe(module) as trace:
        ours = module(x, x, mask_bias(keep[:, None, None, :], x.dtype))
    for t in range(LENGTH):
        assert equal(ours[0, t], look(module, x[0, t].tolist(), x[0, :3].tolist()))
    scaled, value = trace["scaled"].tensor, trace["value"].tensor
    slips = [scaled.softmax(-1), scaled.softmax(-1) * keep, (scaled * keep).softmax(-1)]
    assert not any(same(ours, module.output(join_heads(weights @ value))) for weights in slips)


def test_a_sentence_translated_alone_and_in_a_batch_gives_the_same() -> None:
    """In the encoder and in the cross-attention: leaving the mask out of either one is a slip."""
    model = translator(toy_settings())
    keep = keep_lengths([3, 5])
    source, target = some_tokens(2, 5), some_tokens(2, 4, 1)
    alone = model(source[:1, :3], target[:1], None)
    assert same(model(source, target, keep)[:1], alone)
    only_in_decoder = model.decode(target, model.encode(source, None), keep)
    only_in_encoder = model.decode(target, model.encode(source, keep), None)
    assert not same(model.logits(only_in_decoder)[:1], alone)
    assert not same(model.logits(only_in_encoder)[:1], alone)
