"""Our parts compute what torch.nn's and Hugging Face's compute, given the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
)
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from regard.model.attention import Attention, causal_mask, mask_bias
from regard.model.layers import FeedForward, Layer, build_norm
from regard.model.observe import observe
from regard.model.positions import RotaryPositions
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Stack
from regard.settings import ModelSettings
from tests.model.foreign import (
    copy_bert,
    copy_gpt2,
    copy_llama,
    copy_marian,
    copy_swiglu,
    copy_torch_attention,
    copy_torch_layer,
    copy_torch_stack,
    copy_weights,
    put,
)
from tests.model.toys import keep_lengths, scrambled, some_tokens, toy_settings

WIDTH, HEADS, HIDDEN = 16, 4, 24
TORCH_SHAPE: dict[str, Any] = {
    "d_model": WIDTH,
    "nhead": HEADS,
    "dim_feedforward": HIDDEN,
    "dropout": 0.0,
    "batch_first": True,
}
KEEP = keep_lengths([5, 7, 2])
TARGET_KEEP = keep_lengths([6, 3, 4])
BATCH, SOURCE, TARGET = 3, 7, 6

norms = pytest.mark.parametrize("norm", ["pre", "post"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@norms
@activations
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_layer_equals_torch(norm: Any, activation: Any, causal: bool) -> None:
    theirs = scrambled(nn.TransformerEncoderLayer(**TORCH_SHAPE, activation=activation, norm_first=norm == "pre"))
    ours = Layer(toy_settings(norm=norm, activation=activation), cross=False, rotary=None).eval()
    copy_torch_layer(ours, theirs)
    x = torch.randn(BATCH, SOURCE, WIDTH)
    may_look = causal_mask(SOURCE) if causal else torch.ones(SOURCE, SOURCE, dtype=torch.bool)
    bias = mask_bias(KEEP[:, None, None, :] & may_look, x.dtype)
    expected = theirs(x, src_mask=~may_look, src_key_padding_mask=~KEEP)
    assert_same(ours(x, bias), expected)


@norms
@activations
def test_decoder_layer_equals_torch(norm: Any, activation: Any) -> None:
    theirs = scrambled(nn.TransformerDecoderLayer(**TORCH_SHAPE, activation=activation, norm_first=norm == "pre"))
    ours = Layer(toy_settings(norm=norm, activation=activation), cross=True, rotary=None).eval()
    copy_torch_layer(ours, theirs)
    x, memory = torch.randn(BATCH, TARGET, WIDTH), torch.randn(BATCH, SOURCE, WIDTH)
    expected = theirs(
        x,
        memory,
        tgt_mask=~causal_mask(TARGET),
        tgt_key_padding_mask=~TARGET_KEEP,
        memory_key_padding_mask=~KEEP,
    )
    bias = mask_bias(TARGET_KEEP[:, None, None, :] & causal_mask(TARGET), x.dtype)
    assert_same(ours(x, bias, memory, mask_bias(KEEP[:, None, None, :], x.dtype)), expected)


@norms
def test_encoder_stack_equals_torch(norm: Any) -> None:
    last = nn.LayerNorm(WIDTH) if norm == "pre" else None
    layer = nn.TransformerEncoderLayer(**TORCH_SHAPE, norm_first=norm == "pre")
    theirs = nn.TransformerEncoder(layer, 3, norm=last, enable_nested_tensor=False)
    for parameter in theirs.parameters():  # the layers are copies of one: make them different
        nn.init.normal_(parameter, std=0.3)
    theirs.eval()
    ours = Stack(toy_settings(norm=norm), 3).eval()
    copy_torch_stack(ours, theirs)
    x = torch.randn(BATCH, SOURCE, WIDTH)
    expected = theirs(x, src_key_padding_mask=~KEEP)
    assert_same(ours(x, mask_bias(KEEP[:, None, None, :], x.dtype)), expected)


@norms
def test_decoder_stack_equals_torch(norm: Any) -> None:
    last = nn.LayerNorm(WIDTH) if norm == "pre" else None
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(**TORCH_SHAPE, norm_first=norm == "pre"), 2, last)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs.eval()
    ours = Stack(toy_settings(norm=norm), 2, cross=True).eval()
    copy_torch_stack(ours, theirs)
    x, memory = torch.randn(BATCH, TARGET, WIDTH), torch.randn(BATCH, SOURCE, WIDTH)
    expected = theirs(x, memory, tgt_mask=~causal_mask(TARGET), memory_key_padding_mask=~KEEP)
    memory_bias = mask_bias(KEEP[:, None, None, :], x.dtype)
    assert_same(ours(x, mask_bias(causal_mask(TARGET), x.dtype), memory, memory_bias), expected)


def test_attention_and_its_weights_equal_torch() -> None:
    theirs = scrambled(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(toy_settings()).eval()
    copy_torch_attention(ours, theirs)
    x, memory = torch.randn(BATCH, TARGET, WIDTH), torch.randn(BATCH, SOURCE, WIDTH)
    expected, weights = theirs(x, memory, memory, key_padding_mask=~KEEP, average_attn_weights=False)
    with observe(ours) as trace:
        assert_same(ours(x, memory, mask_bias(KEEP[:, None, None, :], x.dtype)), expected)
    assert_same(trace["weights"].tensor, weights)


def test_attention_equals_torch_where_keys_and_values_have_widths_of_their_own() -> None:
    """Theirs reads keys and values from two inputs; ours from one memory, in which they lie side by side."""
    kdim, vdim = 7, 9
    theirs = scrambled(nn.MultiheadAttention(WIDTH, HEADS, kdim=kdim, vdim=vdim, batch_first=True))
    assert theirs.in_proj_bias is not None
    ours = Attention(toy_settings()).eval()
    put(ours.query.weight, theirs.q_proj_weight)
    put(ours.key.weight, F.pad(theirs.k_proj_weight, (0, vdim)))
    put(ours.value.weight, F.pad(theirs.v_proj_weight, (kdim, 0)))
    for linear, bias in zip((ours.query, ours.key, ours.value), theirs.in_proj_bias.chunk(3), strict=True):
        put(linear.bias, bias)
    copy_weights(ours.output, theirs.out_proj)
    x, memory = torch.randn(BATCH, TARGET, WIDTH), torch.randn(BATCH, SOURCE, kdim + vdim)
    expected, _ = theirs(x, memory[..., :kdim], memory[..., kdim:], need_weights=False)
    assert_same(ours(x, memory, None), expected)


@pytest.mark.parametrize("length", [5, 70])  # 70 * 70 scores take the fused path
@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_queries_equal_torch(groups: int, length: int) -> None:
    ours = scrambled(Attention(toy_settings(key_value_heads=groups, value_width=3)))
    x = torch.randn(2, length, WIDTH)
    query, key, value = (
        linear(x).view(2, length, heads, -1).transpose(1, 2)
        for linear, heads in ((ours.query, HEADS), (ours.key, groups), (ours.value, groups))
    )
    context = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    expected = ours.output(context.transpose(1, 2).reshape(2, length, HEADS * 3))
    assert_same(ours(x, x, mask_bias(causal_mask(length), x.dtype)), expected)


@pytest.mark.parametrize(("base", "start"), [(10_000.0, 0), (10_000.0, 9), (500.0, 3)])
def test_rotary_positions_equal_llama(base: float, start: int) -> None:
    settings = toy_settings(width=32, positions="rotary", rotary_base=base)
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    query, key = torch.randn(2, HEADS, 6, 8), torch.randn(2, HEADS, 6, 8)
    cos, sin = LlamaRotaryEmbedding(config)(query, torch.arange(start, start + 6)[None])
    ours = RotaryPositions(settings)
    expected_query, expected_key = apply_rotary_pos_emb(query, key, cos, sin)
    assert_same(ours(query, start), expected_query)
    assert_same(ours(key, start), expected_key)


@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_equals_llama(bias: bool) -> None:
    config = LlamaConfig(hidden_size=WIDTH, intermediate_size=HIDDEN, num_attention_heads=HEADS, mlp_bias=bias)
    theirs = scrambled(LlamaMLP(config))
    ours = FeedForward(toy_settings(activation="swiglu", bias=bias)).eval()
    copy_swiglu(ours, theirs)
    x = torch.randn(2, 5, WIDTH)
    assert_same(ours(x), theirs(x))


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_rms_norm_equals_llama(epsilon: float) -> None:
    theirs = scrambled(LlamaRMSNorm(WIDTH, eps=epsilon))
    ours = build_norm(toy_settings(norm_kind="rms", norm_epsilon=epsilon))
    copy_weights(ours, theirs)
    x = torch.randn(2, 5, WIDTH)
    assert_same(ours(x), theirs(x))


@pytest.mark.parametrize(("activation", "their_name"), [("relu", "relu"), ("gelu", "gelu"), ("silu", "swish")])
def test_encoder_decoder_equals_marian(activation: Any, their_name: str) -> None:
    vocabulary, pad = 30, 29
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=WIDTH,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN,
        max_position_embeddings=32,
        activation_function=their_name,
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        init_std=0.2,
    )
    theirs = scrambled(MarianMTModel(config))
    nn.init.normal_(theirs.final_logits_bias)
    settings = toy_settings(
        encoder_layers=3, activation=activation, positions="sinusoidal-halves", tie="all", output_bias=True
    )
    ours = EncoderDecoder(settings, vocabulary, vocabulary).eval()
    copy_marian(ours, theirs)
    source = some_tokens(BATCH, SOURCE, 1, pad).masked_fill(~KEEP, pad)
    target = some_tokens(BATCH, TARGET, 2, pad)
    target[:, 0] = pad  # Marian's word for "begin"
    target = target.masked_fill(~TARGET_KEEP, pad)
    expected = theirs(input_ids=source, attention_mask=KEEP.long(), decoder_input_ids=target).logits
    assert_same(ours(source, target, KEEP), expected)


@pytest.mark.parametrize(("activation", "their_name"), [("gelu-tanh", "gelu_new"), ("gelu", "gelu")])
def test_decoder_equals_gpt2(activation: Any, their_name: str) -> None:
    config = GPT2Config(
        vocab_size=30,
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        n_inner=HIDDEN,
        n_positions=12,
        activation_function=their_name,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.2,
    )
    theirs = scrambled(GPT2LMHeadModel(config))
    settings = toy_settings(
        norm="pre", activation=activation, positions="learned", max_length=12, scale_embedding=False
    )
    ours = Decoder(settings, 30).eval()
    copy_gpt2(ours, theirs)
    tokens = some_tokens(BATCH, 12, vocabulary=30)
    assert_same(ours(tokens), theirs(input_ids=tokens).logits)


@pytest.mark.parametrize("head_width", [None, 6])
def test_decoder_equals_llama(head_width: int | None) -> None:
    config = LlamaConfig(
        vocab_size=30,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        head_dim=head_width,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    theirs = scrambled(LlamaForCausalLM(config))
    settings = ModelSettings(
        width=WIDTH,
        hidden=HIDDEN,
        heads=HEADS,
        key_value_heads=2,
        key_width=head_width,
        value_width=head_width,
        decoder_layers=2,
        norm="pre",
        norm_kind="rms",
        norm_epsilon=1e-6,
        activation="swiglu",
        positions="rotary",
        tie="none",
        scale_embedding=False,
        bias=False,
    )
    ours = Decoder(settings, 30).eval()
    copy_llama(ours, theirs)
    tokens = some_tokens(BATCH, 40, vocabulary=30)
    assert_same(ours(tokens), theirs(input_ids=tokens).logits)


def test_encoder_equals_bert() -> None:
    config = BertConfig(
        vocab_size=30,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        max_position_embeddings=12,
        layer_norm_eps=1e-2,  # far from the default, to see that it is heeded
        initializer_range=0.2,
    )
    theirs = scrambled(BertModel(config, add_pooling_layer=False))
    settings = toy_settings(
        activation="gelu",
        positions="learned",
        max_length=12,
        scale_embedding=False,
        embedding_norm=True,
        segments=2,
        norm_epsilon=1e-2,
    )
    ours = Encoder(settings, 30).eval()
    copy_bert(ours, theirs)
    tokens = some_tokens(BATCH, SOURCE, vocabulary=30)
    segments = (torch.arange(SOURCE) > 2).long().expand(BATCH, -1)
    mask = KEEP.long()
    expected = theirs(input_ids=tokens, attention_mask=mask, token_type_ids=segments).last_hidden_state
    assert_same(ours(tokens, KEEP, segments), expected)
    first = theirs(input_ids=tokens, attention_mask=mask).last_hidden_state
    assert_same(ours(tokens, KEEP), first)  # no segments given: all are the first
