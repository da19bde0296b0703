"""The family of a model whose config.json does not name it, as before 2020."""

from __future__ import annotations

import re

from regard.interop.model_families import Config, Tensors

CLASSES = {
    "Bert": "bert",
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "DistilBert": "distilbert",
    "GPT2": "gpt2",
    "Llama": "llama",
    "Mistral": "mistral",
    "Marian": "marian",
}
"""How the names of a family's classes begin."""
BERT_KEYS = "hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings hidden_act"
PLAIN = {
    "bert": (BERT_KEYS, ("bert.embeddings.word_embeddings.weight",)),
    "roberta": (BERT_KEYS, ("roberta.embeddings.word_embeddings.weight",)),
    "distilbert": ("dim n_heads n_layers hidden_dim", ("transformer.layer.0.attention.q_lin.weight",)),
    "gpt2": ("n_embd n_head n_layer", ("wte.weight", "h.0.attn.c_attn.weight")),
}
"""Keys of a config.json and names of tensors that only one family has, or what the names end in."""


def infer_family(config: Config, tensors: Tensors) -> Config:
    """Returns the config with a model_type; configs before 2020 have none, but their layout may show it."""
    if config.get("model_type"):
        return config
    name, by = _by_class(config), "architectures"
    if name is None:
        name, by = _by_layout(config, tensors), "its keys and the names of its weights"
    if name is None:
        return config
    found = Config(config.path, {**config.values, "model_type": name})
    found.notes.append(f"{config.path.name} has no model_type: read as {name}, which {by} show")
    return found


def _by_class(config: Config) -> str | None:
    for given in config.get("architectures", []):
        match = re.fullmatch(r"(\w+?)(Model|For[A-Z]\w+|LMHeadModel|DoubleHeadsModel|MTModel)", str(given))
        if match and match[1] in CLASSES:
            return CLASSES[match[1]]
    return None


def _by_layout(config: Config, tensors: Tensors) -> str | None:
    if config.get("architectures"):  # of another family, which may have the same names
        return None
    for name, (keys, ends) in PLAIN.items():
        if all(config.get(key) is not None for key in keys.split()) and all(
            any(tensor == end or tensor.endswith(f".{end}") for tensor in tensors) for end in ends
        ):
            return name
    bare = "embeddings.word_embeddings.weight" in tensors and "encoder.layer.0.intermediate.dense.weight" in tensors
    return "bert" if bare and config.get("type_vocab_size") == 2 else None  # RoBERTa has but one type
