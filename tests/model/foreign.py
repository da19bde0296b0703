"""Copies the weights of PyTorch's and Hugging Face's modules into ours, to compare what they compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.model.attention import Attention
from regard.model.layers import FeedForward, Layer
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Stack


def copy_weights(ours: Any, theirs: Any) -> None:
    """A linear map, a norm or a table: weight to weight and, where both have one, bias to bias."""
    put(ours.weight, theirs.weight)
    assert (getattr(ours, "bias", None) is None) == (getattr(theirs, "bias", None) is None)
    if getattr(ours, "bias", None) is not None:
        put(ours.bias, theirs.bias)


def put(ours: Tensor, theirs: Tensor) -> None:
    """Refuses what `copy_` would stretch: a weight of another shape."""
    assert ours.shape == theirs.shape
    with torch.no_grad():
        ours.copy_(theirs)


# torch.nn


def copy_torch_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    assert theirs.in_proj_weight is not None
    assert theirs.in_proj_bias is not None
    for name, weight, bias in zip(
        ("query", "key", "value"), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
    ):
        put(getattr(ours, name).weight, weight)
        put(getattr(ours, name).bias, bias)
    copy_weights(ours.output, theirs.out_proj)


def copy_torch_layer(ours: Layer, theirs: Any) -> None:
    copy_torch_attention(ours.self_attention, theirs.self_attn)
    copy_weights(ours.feed_forward.rise, theirs.linear1)
    copy_weights(ours.feed_forward.fall, theirs.linear2)
    norms = [theirs.norm1, theirs.norm2]
    residuals = [ours.self_residual, ours.feed_forward_residual]
    if ours.cross_attention is not None and ours.cross_residual is not None:
        copy_torch_attention(ours.cross_attention, theirs.multihead_attn)
        norms.append(theirs.norm3)
        residuals.insert(1, ours.cross_residual)
    for residual, norm in zip(residuals, norms, strict=True):
        copy_weights(residual.norm, norm)


def copy_torch_stack(ours: Stack, theirs: Any) -> None:
    for layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        assert isinstance(layer, Layer)
        copy_torch_layer(layer, their_layer)
    if theirs.norm is not None:
        copy_weights(ours.norm, theirs.norm)


# Hugging Face


def copy_attention(ours: Attention, theirs: Any, names: str = "q_proj k_proj v_proj out_proj") -> None:
    for name, theirs_name in zip(("query", "key", "value", "output"), names.split(), strict=True):
        copy_weights(getattr(ours, name), getattr(theirs, theirs_name))


def copy_marian(ours: EncoderDecoder, theirs: Any) -> None:
    """Their logits' bias is a buffer beside the tied output layer; their positions have no weights."""
    copy_weights(ours.source_embedding.tokens, theirs.model.shared)
    put(ours.logits.bias, theirs.final_logits_bias[0])
    for stack, their_stack in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for layer, their_layer in zip(stack.layers, their_stack.layers, strict=True):
            assert isinstance(layer, Layer)
            copy_attention(layer.self_attention, their_layer.self_attn)
            copy_weights(layer.self_residual.norm, their_layer.self_attn_layer_norm)
            if layer.cross_attention is not None and layer.cross_residual is not None:
                copy_attention(layer.cross_attention, their_layer.encoder_attn)
                copy_weights(layer.cross_residual.norm, their_layer.encoder_attn_layer_norm)
            copy_weights(layer.feed_forward.rise, their_layer.fc1)
            copy_weights(layer.feed_forward.fall, their_layer.fc2)
            copy_weights(layer.feed_forward_residual.norm, their_layer.final_layer_norm)


def copy_gpt2(ours: Decoder, theirs: Any) -> None:
    """Their linear maps are stored input by output, and query, key and value are one."""
    gpt = theirs.transformer
    copy_weights(ours.embedding.tokens, gpt.wte)
    assert ours.embedding.positions is not None
    put(ours.embedding.positions.get_parameter("table"), gpt.wpe.weight)
    copy_weights(ours.decoder.norm, gpt.ln_f)
    for layer, block in zip(ours.decoder.layers, gpt.h, strict=True):
        assert isinstance(layer, Layer)
        attention, feed_forward = layer.self_attention, layer.feed_forward
        parts = zip(block.attn.c_attn.weight.chunk(3, 1), block.attn.c_attn.bias.chunk(3), strict=True)
        for linear, (weight, bias) in zip((attention.query, attention.key, attention.value), parts, strict=True):
            put(linear.weight, weight.T)
            put(linear.bias, bias)
        for linear, theirs_linear in (
            (attention.output, block.attn.c_proj),
            (feed_forward.rise, block.mlp.c_fc),
            (feed_forward.fall, block.mlp.c_proj),
        ):
            put(linear.weight, theirs_linear.weight.T)
            put(linear.bias, theirs_linear.bias)
        copy_weights(layer.self_residual.norm, block.ln_1)
        copy_weights(layer.feed_forward_residual.norm, block.ln_2)


def copy_llama(ours: Decoder, theirs: Any) -> None:
    copy_weights(ours.embedding.tokens, theirs.model.embed_tokens)
    copy_weights(ours.logits, theirs.lm_head)
    copy_weights(ours.decoder.norm, theirs.model.norm)
    for layer, their_layer in zip(ours.decoder.layers, theirs.model.layers, strict=True):
        assert isinstance(layer, Layer)
        copy_attention(layer.self_attention, their_layer.self_attn, "q_proj k_proj v_proj o_proj")
        copy_swiglu(layer.feed_forward, their_layer.mlp)
        copy_weights(layer.self_residual.norm, their_layer.input_layernorm)
        copy_weights(layer.feed_forward_residual.norm, their_layer.post_attention_layernorm)


def copy_swiglu(ours: FeedForward, theirs: Any) -> None:
    assert ours.gate is not None
    copy_weights(ours.gate, theirs.gate_proj)
    copy_weights(ours.rise, theirs.up_proj)
    copy_weights(ours.fall, theirs.down_proj)


def copy_bert(ours: Encoder, theirs: Any) -> None:
    embedding = theirs.embeddings
    copy_weights(ours.embedding.tokens, embedding.word_embeddings)
    assert ours.embedding.positions is not None
    assert ours.embedding.segments is not None
    put(ours.embedding.positions.get_parameter("table"), embedding.position_embeddings.weight)
    copy_weights(ours.embedding.segments, embedding.token_type_embeddings)
    copy_weights(ours.embedding.norm, embedding.LayerNorm)
    for layer, their_layer in zip(ours.encoder.layers, theirs.encoder.layer, strict=True):
        assert isinstance(layer, Layer)
        copy_attention(layer.self_attention, BertAttention(their_layer.attention), "query key value output")
        copy_weights(layer.self_residual.norm, their_layer.attention.output.LayerNorm)
        copy_weights(layer.feed_forward.rise, their_layer.intermediate.dense)
        copy_weights(layer.feed_forward.fall, their_layer.output.dense)
        copy_weights(layer.feed_forward_residual.norm, their_layer.output.LayerNorm)


class BertAttention:
    """The four maps of BERT's attention, which lie in two modules."""

    def __init__(self, theirs: Any) -> None:
        self.query, self.key, self.value = theirs.self.query, theirs.self.key, theirs.self.value
        self.output = theirs.output.dense
