"""Converts a config.json of Hugging Face to settings, family by family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError, SettingsError
from regard.interop.weight_names import BERT, DISTILBERT, GPT2, LLAMA, OFFSET, ROBERTA, Table, marian_table
from regard.model.positions import sinusoids
from regard.settings import Settings
from regard.settings.resolution import resolve

Tables = dict[str, Any]
Tensors = Mapping[str, Tensor]

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}


KINDS = (
    (
        "hidden_size num_attention_heads num_key_value_heads head_dim intermediate_size num_hidden_layers "
        "max_position_embeddings type_vocab_size vocab_size decoder_vocab_size sliding_window "
        "dim hidden_dim n_heads n_layers n_embd n_head n_inner n_layer n_positions "
        "d_model encoder_layers encoder_ffn_dim encoder_attention_heads decoder_layers",
        int,
        "a whole number above 0",
    ),
    ("hidden_act activation activation_function model_type problem_type", str, "text"),
    ("id2label rope_parameters rope_scaling", dict, "an object"),
    ("architectures", list, "a list"),
)
"""Values of a config.json that are used before the settings that they become are checked."""


class Config:
    """A config.json, with the notes for the user that reading it gave rise to."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.notes: list[str] = []
        for names, kind, told in KINDS:
            for name in names.split():
                value = values.get(name)
                if value is not None and (
                    type(value) is not kind or (isinstance(value, int) and not 0 < value < 2**31)
                ):
                    raise ModelError(f"{path}: {name} must be {told}, not {value!r}")

    def __getitem__(self, name: str) -> Any:
        if self.values.get(name) is None:
            raise ModelError(f"{self.path}: does not say {name}")
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def demand(self, name: str, wanted: Any, reason: str) -> None:
        """Refuses a model that needs what Regard does not have."""
        if self.get(name, wanted) != wanted:
            raise ModelError(f"{self.path}: {name} is {self.values[name]!r}: {reason}")

    def activation(self, name: str, default: str) -> str:
        given = self.get(name, default)
        if given not in ACTIVATIONS:
            raise ModelError(f"{self.path}: {name} is {given!r}, which Regard does not have")
        return ACTIVATIONS[given]

    def tied(self, tensors: Tensors, table: str, output: str, *, default: bool = True) -> bool:
        """Returns whether the output layer is tied to the embedding table: as configured, unless the file has two."""
        if not self.get("tie_word_embeddings", default):
            return False
        if table in tensors and output in tensors and not torch.equal(tensors[table], tensors[output]):
            self.notes.append(f"{output} differs from {table}, although the file says that they are one: kept apart")
            return False
        return True

    def labels(self, tensor: Tensor) -> list[str]:
        """Returns the names of a classifier's classes."""
        count, named = tensor.shape[0] if tensor.ndim else 0, self.get("id2label", {})
        if count < 2 or self.get("problem_type") == "regression":
            raise ModelError(f"{self.path}: the model gives a score, not labels: Regard has no such models")
        if self.get("problem_type") == "multi_label_classification":
            self.notes.append("the labels do not exclude each other, but Regard shares out one probability among them")
        labels = [str(named.get(str(i), f"LABEL_{i}")) for i in range(count)]
        return labels if len(set(labels)) == count else [f"LABEL_{i}" for i in range(count)]


@dataclass(frozen=True)
class Family:
    """A family of models with one `model_type`: how its config and its weight names are read."""

    table: Callable[[Config], Table]
    settings: Callable[[Config, dict[str, Tensor]], Tables]


def bert_shape(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the shape of BERT and RoBERTa."""
    config.demand("position_embedding_type", "absolute", "Regard has no relative positions")
    config.demand("is_decoder", False, "Regard reads BERT as an encoder")
    return ENCODER | {
        "width": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "hidden": config["intermediate_size"],
        "encoder_layers": config["num_hidden_layers"],
        "norm_epsilon": config.get("layer_norm_eps", 1e-12),
        "activation": config.activation("hidden_act", "gelu"),
        "max_length": config["max_position_embeddings"],
        "segments": 0 if _joined_segment(config, tensors) else config.get("type_vocab_size", 2),
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    }


def _joined_segment(config: Config, tensors: dict[str, Tensor]) -> bool:
    """Adds the embedding of a model's only segment, which every token has, to those of the positions."""
    segments, positions = "embeddings.token_type_embeddings.weight", "embeddings.position_embeddings.weight"
    if config.get("type_vocab_size", 2) != 1 or not {segments, positions} <= tensors.keys():
        return False
    if tensors[segments].shape != (1, config["hidden_size"]) or tensors[positions].shape[1:] != (
        config["hidden_size"],
    ):
        return False
    tensors[positions] = tensors[positions].float() + tensors.pop(segments).float()
    return True


ENCODER = {"norm": "post", "positions": "learned", "scale_embedding": False, "embedding_norm": True, "tie": "output"}


def read_bert(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of BERT (Devlin et al., 2019); its heads determine the task."""
    shape = bert_shape(config, tensors)
    shape["pooler"] = "tanh" if "pooler.dense.weight" in tensors else "none"
    if "cls.predictions.transform.dense.weight" in tensors:
        tied = config.tied(tensors, "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
        _drop_unused_bias(tensors, "cls.predictions")
        shape |= {"tie": "output" if tied else "none", "next_sentence": "cls.seq_relationship.weight" in tensors}
        return {"task": "fill", "model": shape}
    if "classifier.weight" in tensors:
        words = _labels_words(config, otherwise=shape["pooler"] == "none")
        return _classifier(config, shape, tensors["classifier.weight"], words=words)
    return {"task": "embed", "model": shape}


def read_roberta(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of RoBERTa (Liu et al., 2019): positions begin at 2, the classifier has its own layer."""
    config.demand("pad_token_id", OFFSET - 1, "Regard expects the positions to begin after it, at 2")
    shape = bert_shape(config, tensors)
    shape["max_length"] -= OFFSET
    judged = "classifier.dense.weight" in tensors
    if judged:
        for name in ("pooler.dense.weight", "pooler.dense.bias"):
            tensors.pop(name, None)  # left over from pre-training: the classifier does not use it
    shape["pooler"] = "tanh" if judged or "pooler.dense.weight" in tensors else "none"
    if "lm_head.dense.weight" in tensors:
        tied = config.tied(tensors, "embeddings.word_embeddings.weight", "lm_head.decoder.weight")
        _drop_unused_bias(tensors, "lm_head")
        if shape["activation"] != "gelu":
            raise ModelError(f"{config.path}: hidden_act is not gelu, which the head for gaps always has")
        return {"task": "fill", "model": shape | {"tie": "output" if tied else "none"}}
    if judged:
        return _classifier(config, shape, tensors["classifier.out_proj.weight"], words=False)
    if "classifier.weight" in tensors:
        return _classifier(config, shape, tensors["classifier.weight"], words=True)
    return {"task": "embed", "model": shape}


def read_distilbert(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of DistilBERT (Sanh et al., 2019): BERT without segments and pooler."""
    shape = ENCODER | {
        "width": config["dim"],
        "heads": config["n_heads"],
        "hidden": config["hidden_dim"],
        "encoder_layers": config["n_layers"],
        "norm_epsilon": 1e-12,
        "activation": config.activation("activation", "gelu"),
        "max_length": config["max_position_embeddings"],
        "segments": 0,
        "pooler": "relu" if "pre_classifier.weight" in tensors else "none",
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.1),
    }
    if "vocab_transform.weight" in tensors:
        tied = config.tied(tensors, "embeddings.word_embeddings.weight", "vocab_projector.weight")
        return {"task": "fill", "model": shape | {"tie": "output" if tied else "none"}}
    if "classifier.weight" in tensors:
        words = _labels_words(config, otherwise=shape["pooler"] == "none")
        return _classifier(config, shape, tensors["classifier.weight"], words=words)
    return {"task": "embed", "model": shape}


def _drop_unused_bias(tensors: dict[str, Tensor], head: str) -> None:
    """Removes one of the two biases of a fill-mask head; Hugging Face uses that of the output layer."""
    if f"{head}.decoder.bias" in tensors:
        tensors.pop(f"{head}.bias", None)


def _labels_words(config: Config, *, otherwise: bool) -> bool:
    """Returns whether a classifier labels words, by the class in its config, or else by the lack of a pooler."""
    names = config.get("architectures", [])
    if any("TokenClassification" in str(name) for name in names):
        return True
    return otherwise and not any("SequenceClassification" in str(name) for name in names)


def _classifier(config: Config, shape: Tables, weight: Tensor, *, words: bool) -> Tables:
    data = {"carrier": "word" if words else "text", "labels": config.labels(weight)}
    return {"task": "classify", "model": shape, "data": data}


def read_gpt2(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of GPT-2 (Radford et al., 2019)."""
    for name, wanted in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        config.demand(name, wanted, "Regard scales attention by the square root of a head's width")
    config.demand("add_cross_attention", False, "Regard reads GPT-2 as a decoder on its own")
    width = config["n_embd"]
    shape = {
        "width": width,
        "heads": config["n_head"],
        "hidden": config.get("n_inner", 4 * width),
        "decoder_layers": config["n_layer"],
        "norm": "pre",
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        "activation": config.activation("activation_function", "gelu_new"),
        "positions": "learned",
        "max_length": config.get("n_positions", 1024),
        "scale_embedding": False,
        "tie": "output" if config.tied(tensors, "wte.weight", "lm_head.weight") else "none",
        "dropout": config.get("resid_pdrop", 0.1),
        "embedding_dropout": config.get("embd_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
    }
    return {"task": "write", "model": shape}


def read_llama(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of Llama (Touvron et al., 2023), and of Mistral without a sliding window."""
    rope = config.get("rope_parameters", {}) or config.get("rope_scaling", {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ModelError(f"{config.path}: its rotary positions are scaled ({kind}), which Regard does not have")
    bias = config.get("attention_bias", False)
    config.demand("mlp_bias", bias, "Regard has a bias in all linear layers or in none")
    config.demand("hidden_act", "silu", "Regard gates with silu alone")
    longest, window = config["max_position_embeddings"], config.get("sliding_window")
    if window is not None and window < longest:
        config.notes.append(f"looks back {window:,} tokens at most (sliding_window): texts are cut to that length")
        longest = window
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim", width // heads)
    own = None if head * heads == width else head
    groups = config.get("num_key_value_heads", heads)
    shape = {
        "width": width,
        "heads": heads,
        "key_value_heads": None if groups == heads else groups,
        "key_width": own,
        "value_width": own,
        "hidden": config["intermediate_size"],
        "decoder_layers": config["num_hidden_layers"],
        "norm": "pre",
        "norm_kind": "rms",
        "norm_epsilon": config.get("rms_norm_eps", 1e-6),
        "activation": "swiglu",
        "positions": "rotary",
        "rotary_base": float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        "max_length": longest,
        "scale_embedding": False,
        "bias": bias,
        "tie": "output" if config.tied(tensors, "embed_tokens.weight", "lm_head.weight", default=False) else "none",
        "dropout": 0.0,
        "attention_dropout": config.get("attention_dropout", 0.0),
    }
    return {"task": "write", "model": shape}


def read_marian(config: Config, tensors: dict[str, Tensor]) -> Tables:
    """Returns the settings of MarianMT (Junczys-Dowmunt et al., 2018; Tiedemann & Thottingal, 2020)."""
    for part in ("ffn_dim", "attention_heads"):
        config.demand(f"decoder_{part}", config[f"encoder_{part}"], "Regard has it equal in encoder and decoder")
    for name in ("normalize_before", "add_final_layer_norm", "normalize_embedding", "add_bias_logits"):
        config.demand(name, False, "Regard reads Marian models with post-norm only")
    config.demand("static_position_embeddings", True, "Regard expects Marian's positions to be sinusoids")
    _drop_sinusoids(config, tensors)
    if "final_logits_bias" in tensors and not tensors["final_logits_bias"].any():
        del tensors["final_logits_bias"]
    tied = config.tied(tensors, "decoder.embed_tokens.weight", "lm_head.weight")
    shared = config.get("share_encoder_decoder_embeddings", True)
    shape = {
        "width": config["d_model"],
        "heads": config["encoder_attention_heads"],
        "hidden": config["encoder_ffn_dim"],
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "norm_epsilon": 1e-5,
        "activation": config.activation("activation_function", "gelu"),
        "positions": "sinusoidal-halves",
        "max_length": config["max_position_embeddings"],
        "tie": {(True, True): "all", (True, False): "inputs", (False, True): "output"}.get((shared, tied), "none"),
        "scale_embedding": config.get("scale_embedding", False),
        "output_bias": "final_logits_bias" in tensors,
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "activation_dropout": config.get("activation_dropout", 0.0),
    }
    return {"task": "translate", "model": shape}


def _drop_sinusoids(config: Config, tensors: dict[str, Tensor]) -> None:
    """Takes out the tables of positions, which are computed and not learnt."""
    for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
        table = tensors.pop(name, None)
        if table is None:
            continue
        even = table.ndim == 2 and table.shape[1] % 2 == 0
        if not even or not torch.allclose(table.float(), sinusoids(len(table), table.shape[1], halves=True), atol=1e-3):
            raise ModelError(f"{config.path}: {name} is not the table of sinusoids that Marian has")


FAMILIES = {
    "bert": Family(lambda _: BERT, read_bert),
    "roberta": Family(lambda _: ROBERTA, read_roberta),
    "xlm-roberta": Family(lambda _: ROBERTA, read_roberta),
    "distilbert": Family(lambda _: DISTILBERT, read_distilbert),
    "gpt2": Family(lambda _: GPT2, read_gpt2),
    "llama": Family(lambda _: LLAMA, read_llama),
    "mistral": Family(lambda _: LLAMA, read_llama),
    "marian": Family(
        lambda config: marian_table(shared=config.get("share_encoder_decoder_embeddings", True)), read_marian
    ),
}


def choose_family(config: Config) -> Family:
    """Returns the family that model_type names."""
    name = config.get("model_type")
    if name not in FAMILIES:
        told = f"a model of type {name!r}" if name else "it has no model_type, and the family is not plain without it"
        raise ModelError(f"{config.path}: {told}: Regard reads {', '.join(FAMILIES)}")
    return FAMILIES[name]


def build_settings(config: Config, tables: Tables) -> Settings:
    """Builds settings from the values of a family; raises ModelError for values out of bounds."""
    try:
        return resolve({**tables, "model": {k: v for k, v in tables["model"].items() if v is not None}})
    except (SettingsError, TypeError) as error:
        raise ModelError(f"{config.path}: {error}") from None
