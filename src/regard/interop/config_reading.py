"""Converts a Hugging Face config.json to settings of Regard."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError, SettingsError
from regard.interop.model_families import FIRST_POSITION, Family, families
from regard.model.positions import sinusoids
from regard.preparation.chosen_settings import resolve
from regard.settings import Settings

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
SYNONYMS = {"gelu_python": "gelu", "gelu_fast": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "swish": "silu"}
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
SIZES = (
    "hidden_size num_attention_heads num_key_value_heads head_dim intermediate_size num_hidden_layers "
    "max_position_embeddings type_vocab_size vocab_size decoder_vocab_size sliding_window "
    "dim hidden_dim n_heads n_layers n_embd n_head n_inner n_layer n_positions "
    "d_model encoder_layers encoder_ffn_dim encoder_attention_heads decoder_layers"
)
TEXTS = "hidden_act activation activation_function model_type problem_type"
TYPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys(SIZES.split(), (int, "a whole number above 0")),
    **dict.fromkeys(TEXTS.split(), (str, "text")),
    **dict.fromkeys(("id2label", "rope_parameters", "rope_scaling"), (dict, "an object")),
    "architectures": (list, "a list"),
}
"""Types of the values in config.json that are used before the resulting settings are validated."""


class Config:
    """The values of a config.json, and notes for the user."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.notes: list[str] = []
        for name, (kind, description) in TYPES.items():
            value = values.get(name)
            if value is not None and (type(value) is not kind or (isinstance(value, int) and not 0 < value < 2**31)):
                raise ModelError(f"{path}: {name} must be {description}, not {value!r}")

    def __getitem__(self, name: str) -> Any:
        if self.values.get(name) is None:
            raise ModelError(f"{self.path}: {name} is missing")
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def require(self, name: str, supported: Any, reason: str) -> None:
        """Raises an error if a value differs from the only one that Regard supports."""
        if self.get(name, supported) != supported:
            raise ModelError(f"{self.path}: {name} is {self.values[name]!r}: {reason}")

    @property
    def family(self) -> Family:
        """The family of the model_type."""
        name = self.get("model_type")
        if name not in families():
            known = ", ".join(families())
            kind = f"the model type {name!r} is unknown" if name else "the model_type is missing and cannot be inferred"
            raise ModelError(f"{self.path}: {kind}: Regard supports {known}")
        return families()[name]

    @property
    def shared(self) -> bool:
        """True if source and target share an embedding table (in MarianMT)."""
        return bool(self.get("share_encoder_decoder_embeddings", True))


def infer_type(config: Config, tensors: Mapping[str, Tensor]) -> Config:
    """Adds a missing model_type, as in configs before 2020, if it can be inferred from class or tensor names."""
    if config.get("model_type"):
        return config
    if architectures := config.get("architectures"):  # other families may have weights with the same names
        evidence = "architectures"
        classes = {value: name for family in families().values() for name, value in family.classes.items()}
        kinds = r"Model|For[A-Z]\w+|LMHeadModel|DoubleHeadsModel|MTModel"
        matches = [re.fullmatch(rf"(\w+?)({kinds})", str(name)[:100]) for name in architectures]
        name = next((classes[match[1]] for match in matches if match and match[1] in classes), None)
    else:
        evidence = "its keys and the names of its weights"
        name = next((name for name, family in families().items() if family.fits(config.values, tensors)), None)
        if {"embeddings.word_embeddings.weight", "encoder.layer.0.intermediate.dense.weight"} <= tensors.keys():
            name = "bert" if config.get("type_vocab_size") == 2 else None  # RoBERTa has only one token type
    if name is None:
        return config
    complete = Config(config.path, {**config.values, "model_type": name})
    complete.notes.append(f"{config.path.name} has no model_type: inferred {name} from {evidence}")
    return complete


def read_settings(config: Config, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Returns the settings, as nested tables, that follow from config.json and the names of the tensors.

    Removes tensors that have no counterpart in Regard, or adds them to others.
    """
    family = config.family
    for key, (supported, reason) in family.refused.items():
        config.require(key, supported, reason)
    shape: dict[str, Any] = dict(family.fixed)
    for key, (name, default) in family.config.items():
        shape[name] = config[key] if default is None else config.get(key, default)
    if "activation" not in family.fixed:
        names = {foreign: own for own, foreign in ACTIVATIONS.items()}
        activation = shape["activation"]
        shape["activation"] = names.get(SYNONYMS.get(activation, activation))
        if shape["activation"] is None:
            key = next(key for key, (name, _) in family.config.items() if name == "activation")
            raise ModelError(f"{config.path}: {key} is {activation!r}, which Regard does not support")
    match family.title:
        case "GPT-2":
            shape["hidden"] = shape["hidden"] or 4 * shape["width"]
        case "Llama":
            shape |= _llama_shape(config)
        case "MarianMT":
            shape |= _marian_shape(config, tensors)
        case _:
            return _encoder_settings(config, shape, tensors)
    tied = _has_tied_output(config, tensors, default=family.title != "Llama")
    translates = family.title == "MarianMT"
    shared = translates and config.shared
    shape["tie"] = ("all" if tied else "inputs") if shared else "output" if tied else "none"
    return {"task": "translate" if translates else "write", "model": shape}


def check_shapes(config: Config, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises an error if sizes in config.json cannot match the tensors, before memory is allocated for them."""
    longest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    keys = [key for key, (name, _) in config.family.config.items() if name in SIDES]
    sizes = {key: config.get(key, 0) for key in (*keys, "vocab_size", "decoder_vocab_size")}
    for key, size in sizes.items():
        if size > 4 * longest + 1000:  # smaller errors are reported later for the tensor
            raise ModelError(f"{config.path}: {key} is {size:,}, but no tensor has a dimension above {longest:,}")
    for key, (name, _) in config.family.config.items():
        if name in ("encoder_layers", "decoder_layers") and config.get(key, 0) > len(tensors):
            raise ModelError(f"{config.path}: {key} is {config[key]:,}, but there are only {len(tensors):,} tensors")
    largest = 4 * max(*sizes.values(), config.get("max_position_embeddings", 1024), 1024) * max(sizes.values())
    for name, tensor in tensors.items():
        if tensor.numel() > largest:
            shape = f"the shape {tuple(tensor.shape)}"
            raise ModelError(f"{path}: the tensor {name} has {shape}, which does not match {config.path.name}")


SIDES = ("width", "heads", "hidden", "segments")


def _has_tied_output(config: Config, tensors: Mapping[str, Tensor], *, default: bool = True) -> bool:
    """Returns whether the output layer is the embedding table, as configured, unless the file contains both."""
    if not config.get("tie_word_embeddings", default):
        return False
    names = ("embedding.tokens.weight", "target_embedding.tokens.weight"), ("fill.logits.weight", "logits.weight")
    table, output = (config.family.foreign_names(*own)[0] for own in names)
    if table in tensors and output in tensors and not torch.equal(tensors[table], tensors[output]):
        config.notes.append(f"{output} differs from {table}, although they should be tied: both are kept")
        return False
    return True


def _encoder_settings(config: Config, shape: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Returns the settings of BERT (Devlin et al., 2019), RoBERTa (Liu et al., 2019) or DistilBERT (Sanh et al., 2019).

    The heads determine the task.
    """
    family, roberta = config.family, config.family.title == "RoBERTa"
    shape["tie"] = "output"
    if shape["segments"] == 1 and _add_only_segment(shape["width"], tensors):
        shape["segments"] = 0
    if roberta:
        shape["max_length"] -= FIRST_POSITION
    *unused, pooler = (name for name in family.foreign_names("pooler.dense.weight"))
    judges = pooler in tensors
    if judges:
        for name in unused:  # left over from pre-training, and not used by the classifier
            tensors.pop(name, None)
            tensors.pop(name.replace("weight", "bias"), None)
    has_pooler = judges or any(name in tensors for name in unused)
    shape["pooler"] = ("relu" if family.title == "DistilBERT" else "tanh") if has_pooler else "none"
    if family.foreign_names("fill.dense.weight")[0] in tensors:
        shape["tie"] = "output" if _has_tied_output(config, tensors) else "none"
        shape["next_sentence"] = "cls.seq_relationship.weight" in tensors
        bias, *used = family.foreign_names("fill.logits.bias")
        if any(name in tensors for name in used):  # of two biases, Hugging Face uses the one of the output layer
            tensors.pop(bias, None)
        if roberta and shape["activation"] != "gelu":
            raise ModelError(
                f"{config.path}: hidden_act must be gelu, because the masked-language-model head always uses it"
            )
        return {"task": "fill", "model": shape}
    for name in family.foreign_names("label.weight"):
        if name in tensors:
            words = not (roberta and judges) and _labels_words(config, by_default=not judges)
            data = {"carrier": "word" if words else "text", "labels": _read_labels(config, tensors[name])}
            return {"task": "classify", "model": shape, "data": data}
    return {"task": "embed", "model": shape}


def _add_only_segment(width: int, tensors: dict[str, Tensor]) -> bool:
    """Adds the embedding of the only segment, to which all tokens belong, to the position embeddings."""
    segments, positions = "embeddings.token_type_embeddings.weight", "embeddings.position_embeddings.weight"
    if not {segments, positions} <= tensors.keys():
        return False
    if tensors[segments].shape != (1, width) or tensors[positions].shape[1:] != (width,):
        return False
    tensors[positions] = tensors[positions].float() + tensors.pop(segments).float()
    return True


def _labels_words(config: Config, *, by_default: bool) -> bool:
    """Returns whether a classifier labels words, judging by the class in its config, or else `by_default`."""
    names = " ".join(map(str, config.get("architectures", [])))
    return "TokenClassification" in names or (by_default and "SequenceClassification" not in names)


def _read_labels(config: Config, tensor: Tensor) -> list[str]:
    """Returns the labels of a classifier."""
    count, named = tensor.shape[0] if tensor.ndim else 0, config.get("id2label", {})
    if count < 2 or config.get("problem_type") == "regression":
        raise ModelError(f"{config.path}: the model predicts a score instead of labels, which Regard does not support")
    if config.get("problem_type") == "multi_label_classification":
        config.notes.append(
            "this model may assign several labels to a text, but in Regard the probabilities of all labels sum to 1"
        )
    numbered = [f"LABEL_{i}" for i in range(count)]
    labels = [str(named.get(str(i), name)) for i, name in enumerate(numbered)]
    return labels if len(set(labels)) == count else numbered


def _llama_shape(config: Config) -> dict[str, Any]:
    """Returns the remaining model settings of Llama (Touvron et al., 2023) and of Mistral without a sliding window."""
    rope = config.get("rope_parameters", {}) or config.get("rope_scaling", {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        shown = " ".join(str(kind).split())[:50]
        raise ModelError(f"{config.path}: Regard does not support scaled rotary positions ({shown})")
    bias = config.get("attention_bias", False)
    config.require("mlp_bias", bias, "Regard supports a bias in all linear layers or in none")
    longest, window = config["max_position_embeddings"], config.get("sliding_window")
    if window is not None and window < longest:
        config.notes.append(
            f"the model attends to at most {window:,} earlier tokens (sliding_window): texts are truncated accordingly"
        )
        longest = window
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head, groups = config.get("head_dim", width // heads), config.get("num_key_value_heads", heads)
    return {
        "key_value_heads": None if groups == heads else groups,
        **dict.fromkeys(("key_width", "value_width"), None if head * heads == width else head),
        "rotary_base": _rotary_base(config, rope),
        "max_length": longest,
        "dropout": 0.0,
    }


def _rotary_base(config: Config, rope: Mapping[str, Any]) -> float:
    base = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    if isinstance(base, bool) or not isinstance(base, int | float) or not 0 < base < 1e30:
        raise ModelError(f"{config.path}: rope_theta must be a number above 0, not {base!r}")
    return float(base)


def _marian_shape(config: Config, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Returns the remaining model settings of MarianMT (Junczys-Dowmunt et al., 2018; Tiedemann & Thottingal, 2020).

    Removes the tables of sinusoidal positions, which are not learned.
    """
    for part in ("ffn_dim", "attention_heads"):
        config.require(f"decoder_{part}", config[f"encoder_{part}"], "Regard needs the same value as in the encoder")
    for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
        table = tensors.pop(name, None)
        if table is None:
            continue
        even = table.ndim == 2 and table.shape[1] % 2 == 0
        if not even or not torch.allclose(table.float(), sinusoids(len(table), table.shape[1], halves=True), atol=1e-3):
            raise ModelError(f"{config.path}: {name} does not contain the sinusoidal positions of Marian")
    if "final_logits_bias" in tensors and not tensors["final_logits_bias"].any():
        del tensors["final_logits_bias"]
    return {"output_bias": "final_logits_bias" in tensors}


def build_settings(path: Path, tables: dict[str, Any]) -> Settings:
    """Builds settings from nested tables; raises ModelError for invalid values."""
    try:
        return resolve({**tables, "model": {k: v for k, v in tables["model"].items() if v is not None}})
    except (SettingsError, TypeError) as error:
        raise ModelError(f"{path}: {error}") from None


def read_decoding(task: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a generation config to decoding settings."""
    if task == "translate":
        penalty = values.get("length_penalty")
        alpha = 1.0 if penalty is None else penalty
        return {"beam": values.get("num_beams") or 1, "length_penalty": alpha, "penalty": "power"}
    if values.get("do_sample") is None:
        return {}
    names = (*SAMPLING, "repetition_penalty") if values["do_sample"] else ("repetition_penalty",)
    decoding = {name: values[name] for name in names if values.get(name) is not None}
    return decoding if values["do_sample"] else {**decoding, "temperature": 0.0}
