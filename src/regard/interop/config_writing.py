"""Converts settings to a Hugging Face config.json; raises an error for models that no Hugging Face class supports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.interop.config_reading import ACTIVATIONS, SAMPLING
from regard.interop.model_families import Family, families
from regard.interop.weight_conversion import export_weights, halve_sinusoids
from regard.settings import ModelSettings, Settings
from regard.tokens.tokenizer import Vocabularies


@dataclass
class Form:
    """The Hugging Face form of a model: its family, its JSON files, and notes for the user."""

    family: Family
    files: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def describe(settings: Settings, vocabularies: Vocabularies) -> Form:
    """Returns the Hugging Face form of a model; raises ModelError if no family supports it."""
    shape = settings.model
    if settings.task not in ("translate", "write"):
        return _bert(settings, vocabularies)
    source, target = vocabularies.source, vocabularies.target
    specials = target.specials
    tokens = {"eos_token_id": specials.end, "pad_token_id": specials.pad}
    if settings.task == "write":
        form = _llama(shape) if shape.positions == "rotary" else _gpt2(shape)
        config = {"vocab_size": target.size, "bos_token_id": specials.begin, **tokens}
    else:
        form = _marian(settings)
        sizes = {"vocab_size": source.size, "decoder_vocab_size": target.size}
        config = {**sizes, "decoder_start_token_id": specials.begin, **tokens}
        if source is not target:
            form.notes.append("the target language has its own vocabulary: its tokenizer is in the folder target")
        if settings.decoding.penalty == "google" and settings.decoding.length_penalty:
            form.notes.append(
                "Transformers uses another length penalty: length ^ alpha, not ((5 + length) / 6) ^ alpha"
            )
    tied = shape.tie in ("all", "output")
    form.files["config.json"] |= {**config, "tie_word_embeddings": tied, "dtype": "float32"}
    form.files["generation_config.json"] = _generation_config(settings, vocabularies)
    return form


def foreign_weights(
    form: Form, settings: Settings, vocabularies: Vocabularies, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the weights under Hugging Face names, including those that only Hugging Face has."""
    shape, family = settings.model, form.family
    if shape.positions == "sinusoidal":
        parameters = halve_sinusoids(parameters)
    weights = export_weights(family, parameters)
    if family.title == "MarianMT":
        weights.setdefault("final_logits_bias", torch.zeros(1, vocabularies.target.size))
    if family.title == "BERT" and not shape.segments:
        name = family.with_prefix("embeddings.token_type_embeddings.weight")
        weights[name] = torch.zeros(1, shape.width)
    if settings.task == "fill" and shape.tie not in ("all", "output"):
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
    return weights


def _form(name: str, shape: ModelSettings, architecture: str, **more: Any) -> Form:
    """Returns a form with the config.json values that follow from families.toml, and with `more`."""
    family = families()[name]
    config: dict[str, Any] = {"architectures": [architecture], "model_type": name}
    for key, (setting, _) in family.config.items():
        value = getattr(shape, setting)
        config[key] = ACTIVATIONS[value] if setting == "activation" else value
    return Form(family, {"config.json": config | more})


def _check(title: str, shape: ModelSettings, supported: Mapping[str, Any], *, plain_heads: bool = True) -> None:
    """Raises an error if a setting has a value that a family does not support."""
    if "activation" not in supported:
        supported = {**supported, "activation": tuple(ACTIVATIONS)}
    for key, values in supported.items():
        given, allowed = getattr(shape, key), values if isinstance(values, tuple) else (values,)
        if given not in allowed:
            given, *names = (str(each).lower() if isinstance(each, bool) else str(each) for each in (given, *allowed))
            raise ModelError(f"{title} does not support model.{key} = {given}: it needs {' or '.join(names)}")
    if not plain_heads:
        return
    if (shape.head_width * shape.heads, shape.head_value_width * shape.heads) != (shape.width, shape.width):
        raise ModelError(f"{title} needs heads whose width is model.width / model.heads")
    if shape.query_groups != shape.heads:
        raise ModelError(
            f"{title} does not support model.key_value_heads = {shape.key_value_heads}: it needs one for each head"
        )


def _bert(settings: Settings, vocabularies: Vocabularies) -> Form:
    shape, family = settings.model, families()["bert"]
    words = settings.data.carrier == "word"
    poolers: tuple[str, ...] = ("tanh",) if settings.task == "classify" else ("tanh", "none")
    if settings.task == "classify" and words:  # word labels do not use the pooler
        poolers = ("tanh", "none", "mean")
    _check("BERT", shape, {**family.fixed, "pooler": poolers})
    names = {"fill": "BertForMaskedLM", "embed": "BertModel", "classify": "BertForSequenceClassification"}
    name = "BertForTokenClassification" if settings.task == "classify" and words else names[settings.task]
    form = _form(
        "bert",
        shape,
        "BertForPreTraining" if shape.next_sentence else name,
        vocab_size=vocabularies.source.size,
        type_vocab_size=max(1, shape.segments),
        pad_token_id=vocabularies.source.specials.pad,
        tie_word_embeddings=shape.tie in ("all", "output"),
        dtype="float32",
    )
    if settings.task == "classify":
        labels = {str(i): label for i, label in enumerate(settings.data.labels)}
        form.files["config.json"] |= {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
    if settings.task == "embed" and not shape.next_sentence:
        form.family = replace(family, prefix="")
    return form


def _gpt2(shape: ModelSettings) -> Form:
    if shape.positions != "learned":
        raise ModelError(
            f"model.positions = {shape.positions} cannot be exported: GPT-2 needs learned, and Llama rotary"
        )
    _check("GPT-2", shape, families()["gpt2"].fixed)
    embedding = shape.dropout if shape.embedding_dropout is None else shape.embedding_dropout
    return _form("gpt2", shape, "GPT2LMHeadModel", embd_pdrop=embedding)


def _llama(shape: ModelSettings) -> Form:
    _check("Llama", shape, families()["llama"].fixed, plain_heads=False)
    if shape.head_width != shape.head_value_width or shape.width % shape.heads:
        raise ModelError(
            "Llama needs keys and values of the same width, and a model.width that is divisible by model.heads"
        )
    rope = {"rope_theta": shape.rotary_base}
    return _form(
        "llama",
        shape,
        "LlamaForCausalLM",
        num_key_value_heads=shape.query_groups,
        head_dim=shape.head_width,
        **rope,
        rope_parameters={"rope_type": "default", **rope},
        hidden_act="silu",
        mlp_bias=shape.bias,
    )


def _marian(settings: Settings) -> Form:
    shape, family = settings.model, families()["marian"]
    positions, ties = ("sinusoidal", "sinusoidal-halves"), ("all", "output", "none")
    _check("MarianMT", shape, {**family.fixed, "positions": positions, "tie": ties})
    form = _form(
        "marian",
        shape,
        "MarianMTModel",
        decoder_attention_heads=shape.heads,
        decoder_ffn_dim=shape.hidden,
        share_encoder_decoder_embeddings=shape.tie == "all",
        is_encoder_decoder=True,
        forced_eos_token_id=None,
    )
    if shape.tie != "all":
        form.family = family.without_shared_table()
    return form


def _generation_config(settings: Settings, vocabularies: Vocabularies) -> dict[str, Any]:
    """Converts the decoding settings to a generation config, which `read_decoding` can read."""
    specials, decoding = vocabularies.target.specials, settings.decoding
    config: dict[str, Any] = {"eos_token_id": specials.end, "pad_token_id": specials.pad}
    if settings.task == "translate":
        config |= {
            "decoder_start_token_id": specials.begin,
            "max_length": settings.model.max_length,
            "num_beams": decoding.beam,
            "suppress_tokens": specials.never_generated,
        }
        if decoding.beam > 1:
            config |= {"length_penalty": decoding.length_penalty, "early_stopping": "never"}
        return config
    config |= {
        "bos_token_id": specials.begin,
        "do_sample": decoding.temperature > 0,
        "max_new_tokens": decoding.max_tokens,
        "repetition_penalty": decoding.repetition_penalty,
    }
    if specials.never_generated:
        config["suppress_tokens"] = specials.never_generated
    if decoding.temperature:
        config |= {name: getattr(decoding, name) for name in SAMPLING}
    return config
