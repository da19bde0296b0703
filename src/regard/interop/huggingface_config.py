"""Converts settings to a config.json of Hugging Face, and refuses models that have no such form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.interop.weight_names import BERT, GPT2, LLAMA, Table, marian_table
from regard.settings import ModelSettings, Settings
from regard.tokens.tokenizer import Vocabularies

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
Tensors = dict[str, Tensor]


def _same(tensors: Tensors) -> Tensors:
    return tensors


@dataclass
class Form:
    """A model in the form of others: its JSON files, its names, and what is done to its weights."""

    files: dict[str, Any]
    table: Table
    turn: Callable[[Tensors], Tensors] = _same  # with our names
    adapt: Callable[[Tensors], Tensors] = _same  # with theirs
    notes: list[str] = field(default_factory=list)


def describe(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the foreign form that fits a model; raises ModelError if there is none."""
    match settings.task:
        case "translate":
            return marian(settings, vocabularies)
        case "write":
            rotary = settings.model.positions == "rotary"
            return llama(settings, vocabularies) if rotary else gpt2(settings, vocabularies)
        case _:
            return bert(settings, vocabularies)


def demand(name: str, shape: ModelSettings, **wanted: Any) -> None:
    """Refuses a model with another value of a setting than the one, or those, that a family has."""
    for key, value in wanted.items():
        given, allowed = getattr(shape, key), value if isinstance(value, tuple) else (value,)
        if given not in allowed:
            told = " or ".join(spell(each) for each in allowed)
            raise ModelError(f"{name} cannot have model.{key} = {spell(given)}: it has {told}")


def spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def demand_plain_heads(name: str, shape: ModelSettings) -> None:
    """Refuses heads of unusual width or number."""
    if (shape.head_width * shape.heads, shape.head_value_width * shape.heads) != (shape.width, shape.width):
        raise ModelError(f"{name} cannot have heads of a width that is not model.width / model.heads")
    if shape.query_groups != shape.heads:
        raise ModelError(f"{name} cannot have model.key_value_heads = {shape.key_value_heads}: it has one a head")


def bert(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the config of an encoder as BERT."""
    shape, specials = settings.model, vocabularies.source.specials
    demand("BERT", shape, positions="learned", norm="post", norm_kind="layer", embedding_norm=True)
    demand("BERT", shape, scale_embedding=False, bias=True, activation=tuple(ACTIVATIONS))
    demand_plain_heads("BERT", shape)
    words = settings.data.carrier == "word"
    if settings.task == "classify" and words:  # words are not pooled
        demand("BERT", shape, pooler=("tanh", "none", "mean"))
    else:
        demand("BERT", shape, pooler="tanh" if settings.task == "classify" else ("tanh", "none"))
    names = {"fill": "BertForMaskedLM", "embed": "BertModel", "classify": "BertForSequenceClassification"}
    name = "BertForTokenClassification" if settings.task == "classify" and words else names[settings.task]
    tied = shape.tie in ("all", "output")
    config = {
        "architectures": ["BertForPreTraining" if shape.next_sentence else name],
        "model_type": "bert",
        "vocab_size": vocabularies.source.size,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.encoder_layers,
        "layer_norm_eps": shape.norm_epsilon,
        "hidden_act": ACTIVATIONS[shape.activation],
        "max_position_embeddings": shape.max_length,
        "type_vocab_size": max(1, shape.segments),
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.attention_dropout,
        "pad_token_id": specials.pad,
        "tie_word_embeddings": tied,
        "dtype": "float32",
    }
    if settings.task == "classify":
        config["id2label"] = {str(i): label for i, label in enumerate(settings.data.labels)}
        config["label2id"] = {label: i for i, label in enumerate(settings.data.labels)}
    files: dict[str, Any] = {"config.json": config}
    if settings.task == "embed":
        files |= sentence_files(settings)
    bare = settings.task == "embed" and not shape.next_sentence
    table = replace(BERT, prefix="") if bare else BERT

    def adapt(tensors: Tensors) -> Tensors:
        if not shape.segments:
            tensors[table.full("embeddings.token_type_embeddings.weight")] = torch.zeros(1, shape.width)
        if settings.task == "fill" and not tied:
            tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        return tensors

    return Form(files, table, adapt=adapt)


def sentence_files(settings: Settings) -> dict[str, Any]:
    """Returns the files that sentence-transformers needs to compute the same vectors."""
    path, mean = "sentence_transformers.models.", settings.embedding.pooling == "mean"
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    steps = steps if settings.embedding.normalize else steps[:2]
    pooling = {"pooling_mode_cls_token": not mean, "pooling_mode_mean_tokens": mean}
    return {
        "modules.json": [
            {"idx": i, "name": str(i), "path": place, "type": path + kind} for i, (place, kind) in enumerate(steps)
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": settings.model.width, **pooling},
    }


def gpt2(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the config of a decoder as GPT-2."""
    shape = settings.model
    if shape.positions != "learned":
        raise ModelError(f"neither GPT-2 (learned) nor Llama (rotary) has model.positions = {shape.positions}")
    demand("GPT-2", shape, norm="pre", norm_kind="layer", bias=True, output_bias=False, activation=tuple(ACTIVATIONS))
    demand("GPT-2", shape, scale_embedding=False, embedding_norm=False, segments=0)
    demand_plain_heads("GPT-2", shape)
    embedding = shape.dropout if shape.embedding_dropout is None else shape.embedding_dropout
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": shape.width,
        "n_head": shape.heads,
        "n_inner": shape.hidden,
        "n_layer": shape.decoder_layers,
        "n_positions": shape.max_length,
        "layer_norm_epsilon": shape.norm_epsilon,
        "activation_function": ACTIVATIONS[shape.activation],
        "resid_pdrop": shape.dropout,
        "embd_pdrop": embedding,
        "attn_pdrop": shape.attention_dropout,
        **writer_config(settings, vocabularies),
    }
    return Form({"config.json": config, "generation_config.json": writing(settings, vocabularies)}, GPT2)


def llama(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the config of a decoder as Llama."""
    shape = settings.model
    demand("Llama", shape, norm="pre", norm_kind="rms", activation="swiglu", output_bias=False)
    demand("Llama", shape, scale_embedding=False, embedding_norm=False, segments=0)
    if shape.head_width != shape.head_value_width or shape.width % shape.heads:
        raise ModelError(
            "Llama cannot have keys and values of different widths, or a width that its heads do not share"
        )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.query_groups,
        "head_dim": shape.head_width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.decoder_layers,
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rotary_base},
        "hidden_act": "silu",
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
        "attention_dropout": shape.attention_dropout,
        **writer_config(settings, vocabularies),
    }
    return Form({"config.json": config, "generation_config.json": writing(settings, vocabularies)}, LLAMA)


def writer_config(settings: Settings, vocabularies: Vocabularies) -> dict[str, Any]:
    """Returns the fields that configs of all decoders share."""
    specials = vocabularies.target.specials
    return {
        "vocab_size": vocabularies.target.size,
        "tie_word_embeddings": settings.model.tie in ("all", "output"),
        "bos_token_id": specials.begin,
        "eos_token_id": specials.end,
        "pad_token_id": specials.pad,
        "dtype": "float32",
    }


def writing(settings: Settings, vocabularies: Vocabularies) -> dict[str, Any]:
    """Returns a decoder's sampling settings as a generation config."""
    specials, decoding = vocabularies.target.specials, settings.decoding
    found: dict[str, Any] = {
        "bos_token_id": specials.begin,
        "eos_token_id": specials.end,
        "pad_token_id": specials.pad,
        "do_sample": decoding.temperature > 0,
        "max_new_tokens": decoding.max_tokens,
        "repetition_penalty": decoding.repetition_penalty,
    }
    if specials.never_generated:
        found["suppress_tokens"] = specials.never_generated
    if decoding.temperature:
        found |= {name: getattr(decoding, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    return found


def marian(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the config of a translator as MarianMT."""
    shape = settings.model
    demand("MarianMT", shape, positions=("sinusoidal", "sinusoidal-halves"), norm="post", norm_kind="layer")
    demand("MarianMT", shape, norm_epsilon=1e-5, activation=tuple(ACTIVATIONS), bias=True, embedding_norm=False)
    demand("MarianMT", shape, tie=("all", "output", "none"), segments=0)
    demand_plain_heads("MarianMT", shape)
    source, target = vocabularies.source, vocabularies.target
    specials, shared = target.specials, shape.tie == "all"
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "d_model": shape.width,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.heads,
        "decoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.hidden,
        "decoder_ffn_dim": shape.hidden,
        "activation_function": ACTIVATIONS[shape.activation],
        "max_position_embeddings": shape.max_length,
        "scale_embedding": shape.scale_embedding,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": shape.tie != "none",
        "dropout": shape.dropout,
        "attention_dropout": shape.attention_dropout,
        "activation_dropout": shape.activation_dropout,
        "is_encoder_decoder": True,
        "decoder_start_token_id": specials.begin,
        "eos_token_id": specials.end,
        "pad_token_id": specials.pad,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }
    notes = []
    if vocabularies.source is not vocabularies.target:
        notes.append("the target language has a vocabulary of its own: its tokenizer is in the folder target")
    if settings.decoding.penalty == "google" and settings.decoding.length_penalty:
        notes.append("their length penalty has another form: length ^ alpha, not ((5 + length) / 6) ^ alpha")
    files = {"config.json": config, "generation_config.json": searching(settings, vocabularies)}

    def adapt(tensors: Tensors) -> Tensors:
        return {"final_logits_bias": torch.zeros(1, target.size), **tensors}

    turn = halve_sinusoids if shape.positions == "sinusoidal" else _same
    return Form(files, marian_table(shared=shared), turn, adapt, notes)


def searching(settings: Settings, vocabularies: Vocabularies) -> dict[str, Any]:
    """Returns a translator's search settings as a generation config."""
    specials, decoding = vocabularies.target.specials, settings.decoding
    found: dict[str, Any] = {
        "decoder_start_token_id": specials.begin,
        "eos_token_id": specials.end,
        "pad_token_id": specials.pad,
        "max_length": settings.model.max_length,
        "num_beams": decoding.beam,
        "suppress_tokens": specials.never_generated,
    }
    if decoding.beam > 1:
        found |= {"length_penalty": decoding.length_penalty, "early_stopping": "never"}
    return found


def halve_sinusoids(tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns the weights for positions with all sines first, from weights for interleaved sines and cosines.

    The residual stream has no preferred order: if everything that writes to it and everything that reads from it is
    reordered alike, its states are reordered and all outputs stay the same.
    """
    turned = {}
    for name, tensor in tensors.items():
        module, kind = name.rsplit(".", 2)[-2:]
        writes = module in ("output", "fall", "norm")
        reads = module in ("query", "key", "value", "rise", "gate", "tokens", "logits")
        assert writes or reads, name
        axis = 0 if writes else 1
        if reads and kind == "bias":
            turned[name] = tensor
            continue
        width = tensor.shape[axis]
        order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
        turned[name] = tensor.index_select(axis, order)
    return turned
