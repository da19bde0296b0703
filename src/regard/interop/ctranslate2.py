"""Exports models to CTranslate2, which runs them without PyTorch on CPUs and GPUs, also in int8."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError
from regard.interop.export_folder import (
    README,
    SINUSOIDS,
    TOKENIZERS,
    layers_of,
    require,
    sine_table,
    tag_notes,
    whole_folder,
    write_companions,
)
from regard.model.attention import Attention
from regard.model.layers import FeedForward
from regard.model.transformer import Decoder, Embedding, Encoder, EncoderDecoder, Stack
from regard.settings import ModelSettings
from regard.tokens.language_directions import targets_of
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, Transformer, read_folder, transformer_of

FILES = (
    "model.bin",
    "config.json",
    *(f"{name}.json" for name in ("vocabulary", "shared_vocabulary", "source_vocabulary", "target_vocabulary")),
    *TOKENIZERS,
    README,
)


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Converts a model folder of Regard to a CTranslate2 folder; returns notes for the user."""
    folder, output = Path(folder), Path(output)
    specs = require("ctranslate2", "ctranslate2").specs
    contents = read_folder(folder)
    with whole_folder(output, folder, FILES, overwrite=overwrite) as place:
        spec = build_spec(specs, contents)
        spec.validate()
        spec.optimize()
        spec.save(str(place))
        write_companions(place, "ctranslate2", contents, _example_values(contents))
    return notes(contents)


def _example_values(contents: Contents) -> dict[str, Any]:
    """Returns the values for the example in README.md."""
    settings, tokenizer = contents.settings, contents.vocabularies.target
    specials, pieces = tokenizer.specials, vocabulary(tokenizer)
    normalize = "vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)\n"
    return {
        "TAG": "".join(f'"<tag:{name}>", ' for name in targets_of(settings.data)[:1]),
        "ALPHA": settings.decoding.length_penalty,
        "BEAM": settings.decoding.beam,
        "NEVER": [[pieces[token]] for token in specials.never_generated],
        "PREFIX": [pieces[specials.begin]] if specials.prompt else [],
        "POOL": "state[: len(row)].mean(0)" if settings.embedding.pooling == "mean" else "state[0]",
        "NORMALIZE": normalize if settings.embedding.normalize else "",
    }


def notes(contents: Contents) -> list[str]:
    """Lists the differences between the exported model and Regard."""
    decoding, model = contents.settings.decoding, contents.model
    if isinstance(model, Encoder):
        heads = {"fill": model.fill, "label": model.label, "next sentence": model.follows}
        lost = [name for name, head in heads.items() if head is not None]
        return [f"CTranslate2 runs the encoder alone: without the {name} head (ONNX has it)" for name in lost]
    differences = ["CTranslate2 would also generate special tokens: see suppress_sequences in README.md"]
    if decoding.penalty == "google" and decoding.length_penalty and decoding.beam > 1:
        differences.append(
            "CTranslate2's length penalty is length ^ alpha (decoding.penalty = power), not google's: a beam may differ"
        )
    return [*differences, *tag_notes(contents.settings)]


# The weights under CTranslate2's names


def build_spec(specs: Any, contents: Contents) -> Any:
    """Returns the CTranslate2 specification of a model, with its weights, vocabulary and special tokens."""
    model, settings = transformer_of(contents, "regard export"), contents.settings.model
    spec = build_model(specs, model, settings)
    tokens, specials = vocabulary(contents.vocabularies.target), contents.vocabularies.target.specials
    unknown = specials.end if specials.unknown is None else specials.unknown
    config = {"bos_token": specials.begin, "eos_token": specials.end, "unk_token": unknown}
    if isinstance(model, EncoderDecoder):
        config["decoder_start_token"] = specials.begin
        spec.config.add_source_eos = True
        spec.register_source_vocabulary(source_vocabulary(contents.vocabularies, tokens[specials.end]))
        spec.register_target_vocabulary(tokens)
    else:
        spec.register_vocabulary(tokens)
    for name, token in config.items():
        setattr(spec.config, name, tokens[token])
    spec.config.layer_norm_epsilon = settings.norm_epsilon
    return spec


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Returns the piece for each id, or a unique name for an id without a piece."""
    pieces = (tokenizer.model.id_to_token(token) for token in range(tokenizer.size))
    return [f"<unused {token}>" if piece is None else piece for token, piece in enumerate(pieces)]


def source_vocabulary(vocabularies: Vocabularies, end: str) -> list[str]:
    """Returns the pieces of the source vocabulary; raises an error unless both vocabularies have the same end token."""
    pieces = vocabulary(vocabularies.source)
    source_end = pieces[vocabularies.target.specials.end]
    if source_end != end:
        ends = f"{source_end} in the source and {end} in the target"
        raise ModelError(f"the end of a text is {ends}: CTranslate2 needs the same token for both")
    return pieces


def build_model(specs: Any, model: Transformer, settings: ModelSettings) -> Any:
    """Converts the layers of a model."""
    if isinstance(model, EncoderDecoder):
        encoder = build_encoder(specs, model.source_embedding, model.encoder, settings)
        decoder = build_decoder(specs, model.target_embedding, model.decoder, model.logits, settings)
        return specs.TransformerSpec(encoder, decoder)
    if isinstance(model, Decoder):
        decoder = build_decoder(specs, model.embedding, model.decoder, model.logits, settings)
        return specs.TransformerDecoderModelSpec(decoder)
    encoder = build_encoder(specs, model.embedding, model.encoder, settings, segments=True)
    if model.pooler is None:
        return specs.TransformerEncoderModelSpec(encoder)
    activation = specs.Activation.Tanh if settings.pooler == "tanh" else specs.Activation.RELU
    spec = specs.TransformerEncoderModelSpec(encoder, pooling_layer=True, pooling_activation=activation)
    set_linear(spec.pooler_dense, plain(model.pooler.dense))
    return spec


def build_encoder(
    specs: Any, embedding: Embedding, stack: Stack, settings: ModelSettings, *, segments: bool = False
) -> Any:
    """Converts an encoder; with `segments`, segment ids are a second input, else all tokens belong to the first one."""
    table = embedding.segments.weight.detach().float() / embedding.scale if embedding.segments and segments else None
    options = shape(specs, settings) | {"embeddings_merge": specs.EmbeddingsMerge.ADD}
    spec = specs.TransformerEncoderSpec(len(stack.layers), num_source_embeddings=1 if table is None else 2, **options)
    if table is None:
        spec.embeddings[0].weight = first_segment(embedding)
    else:
        spec.embeddings[0].weight = embedding.tokens.weight.detach().float()
        spec.embeddings[1].weight = table
    set_stack(spec, embedding, stack, settings)
    return spec


def build_decoder(specs: Any, embedding: Embedding, stack: Stack, logits: nn.Linear, settings: ModelSettings) -> Any:
    """Converts a decoder, with cross-attention if the stack has it."""
    cross = layers_of(stack)[0].cross_attention is not None
    spec = specs.TransformerDecoderSpec(len(stack.layers), with_encoder_attention=cross, **shape(specs, settings))
    spec.embeddings.weight = first_segment(embedding)
    set_stack(spec, embedding, stack, settings)
    set_linear(spec.projection, plain(logits))
    return spec


ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}


def shape(specs: Any, settings: ModelSettings) -> dict[str, Any]:
    """Returns the options that encoders and decoders of CTranslate2 share."""
    return {
        "num_heads": settings.heads,
        "num_heads_kv": settings.query_groups,
        "head_dim": common_width(settings),
        "pre_norm": settings.norm == "pre",
        "rms_norm": settings.norm_kind == "rms",
        "layernorm_embedding": settings.embedding_norm,
        "activation": getattr(specs.Activation, ACTIVATIONS[settings.activation]),
        "ffn_glu": settings.activation == "swiglu",
        "rotary_dim": settings.head_width if settings.positions == "rotary" else None,
        "rotary_interleave": False,
        "rotary_base": settings.rotary_base,
    }


def common_width(settings: ModelSettings) -> int:
    """Returns the head width for CTranslate2, where keys and values have the same width: narrower ones are padded."""
    return max(settings.head_width, settings.head_value_width)


def first_segment(embedding: Embedding) -> Tensor:
    """Returns the token embeddings [V, D] plus the embedding of the first segment, which Regard adds to every token."""
    table = embedding.tokens.weight.detach().float()
    return table if embedding.segments is None else table + embedding.segments.weight.detach()[0] / embedding.scale


def set_stack(spec: Any, embedding: Embedding, stack: Stack, settings: ModelSettings) -> None:
    """Converts an embedding and the layers of a stack; for models without positions, zeros replace the sinusoids."""
    spec.scale_embeddings = settings.scale_embedding
    if settings.embedding_norm:
        set_norm(spec.layernorm_embedding, embedding.norm)
    if settings.positions == "none":
        spec.position_encodings.encodings = torch.zeros(max(SINUSOIDS, settings.max_length), settings.width)
    elif settings.positions == "learned" and embedding.positions is not None:
        spec.position_encodings.encodings = embedding.positions.table.detach().float()  # type: ignore[operator]
    elif settings.positions != "rotary":
        spec.position_encodings.encodings = sine_table(settings)
    for converted, layer in zip(spec.layer, layers_of(stack), strict=True):
        set_attention(converted.self_attention, layer.self_attention, layer.self_residual.norm, settings)
        if layer.cross_attention is not None and layer.cross_residual is not None:
            set_attention(converted.attention, layer.cross_attention, layer.cross_residual.norm, settings)
        set_feed_forward(converted.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    if settings.norm == "pre":
        set_norm(spec.layer_norm, stack.norm)


WeightAndBias = tuple[Tensor, Tensor | None]


def set_attention(spec: Any, attention: Attention, norm: nn.Module, settings: ModelSettings) -> None:
    """Joins queries, keys and values into one linear layer, or keys and values alone in cross-attention."""
    width = common_width(settings)
    query = widen(attention.query, attention.heads, width)
    key, value = (widen(part, attention.groups, width) for part in (attention.key, attention.value))
    *projections, output = spec.linear
    if len(projections) == 1:
        set_linear(projections[0], query, key, value)
    else:
        set_linear(projections[0], query)
        set_linear(projections[1], key, value)
    weight, bias = plain(attention.output)
    columns = weight.reshape(len(weight), attention.heads, -1)
    set_linear(output, (F.pad(columns, (0, width - columns.shape[2])).flatten(1), bias))
    spec.queries_scale = np.float32(1 / math.sqrt(settings.head_width))
    set_norm(spec.layer_norm, norm)


def widen(linear: nn.Linear, heads: int, width: int) -> WeightAndBias:
    """Pads the heads of a linear layer with zeros to `width`."""
    weight, bias = plain(linear)
    rows = weight.reshape(heads, -1, weight.shape[1])
    padding = width - rows.shape[1]
    padded = None if bias is None else F.pad(bias.reshape(heads, -1), (0, padding)).flatten()
    return F.pad(rows, (0, 0, 0, padding)).flatten(0, 1), padded


def set_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    """Converts a feed-forward layer; in CTranslate2, the first layer is the one before the activation."""
    if feed_forward.gate is None:
        set_linear(spec.linear_0, plain(feed_forward.rise))
    else:
        set_linear(spec.linear_0, plain(feed_forward.gate))
        set_linear(spec.linear_0_noact, plain(feed_forward.rise))
    set_linear(spec.linear_1, plain(feed_forward.fall))
    set_norm(spec.layer_norm, norm)


def set_norm(spec: Any, norm: nn.Module) -> None:
    """Converts a LayerNorm or an RMSNorm."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = norm.weight.detach().float()
    if isinstance(norm, nn.LayerNorm):
        spec.beta = norm.bias.detach().float()


def set_linear(spec: Any, *layers: WeightAndBias) -> None:
    """Stacks one or more linear layers that have the same input."""
    spec.weight = torch.cat([weight for weight, _ in layers])
    biases = [bias for _, bias in layers if bias is not None]
    if biases:
        spec.bias = torch.cat(biases)


def plain(linear: nn.Linear) -> WeightAndBias:
    """Returns the weight and bias of a linear layer in float32."""
    return linear.weight.detach().float(), None if linear.bias is None else linear.bias.detach().float()
