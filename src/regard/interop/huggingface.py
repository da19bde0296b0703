"""Imports models from Hugging Face folders, and exports models to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from regard.atomic_files import write_text
from regard.errors import ModelError
from regard.files_of_other_programs import describe_pointer, identify
from regard.interop.config_reading import (
    Config,
    build_settings,
    check_shapes,
    infer_type,
    read_decoding,
    read_settings,
)
from regard.interop.config_writing import describe, foreign_weights
from regard.interop.export_folder import tag_notes, whole_folder
from regard.interop.huggingface_files import (
    CONFIG,
    GENERATION,
    SAFE,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    read_json,
    read_json_if_present,
    read_weights,
)
from regard.interop.vocabulary_files import TARGET, check_exists, check_sizes, read_vocabularies, write_vocabularies
from regard.interop.weight_conversion import import_weights
from regard.model_folder import CARD, EVERYTHING, SETTINGS, TOKENIZER, WEIGHTS
from regard.model_manifest import write_manifest
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Vocabularies
from regard.weights import build_model, parameters, read_folder, transformer_of, write_tensors

MODULES, POOLING, NORMALIZE = "modules.json", "1_Pooling", "2_Normalize"
VOCABULARY = (TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS, TARGET)
EXPORTED = (CONFIG, SAFE, GENERATION, *VOCABULARY, MODULES, POOLING, NORMALIZE, "README.md")


def import_model(
    source: Path | str, output: Path | str, tokenizer: Path | str | None = None, *, overwrite: bool = False
) -> list[str]:
    """Converts a Hugging Face folder to a model folder of Regard; returns notes for the user.

    `tokenizer` is a file or folder whose vocabulary is used instead of the one in `source`.
    """
    source, output = Path(source), Path(output)
    _check_source(source)
    place = source if tokenizer is None else Path(tokenizer)
    check_exists(place)
    place = place.resolve() if place.is_symlink() else place
    config = Config(source / CONFIG, read_json(source / CONFIG))
    if config.get("model_type"):
        _ = config.family  # reports an unknown family before reading the weights
    path, tensors = read_weights(source)
    config = infer_type(config, tensors)
    named = {config.family.without_prefix(name): tensor for name, tensor in tensors.items()}
    tensors = {name: tensor for name, tensor in named.items() if name is not None}
    check_shapes(config, tensors, path)
    tables = read_settings(config, tensors)
    vocabularies = read_vocabularies(place, config)
    if tokenizer is not None:
        check_sizes(vocabularies, place)
    settings = build_settings(
        config.path, tables | _other_settings(source, place, config, tables["task"], vocabularies)
    )
    with torch.device("meta"):
        model = build_model(settings, vocabularies)
    weights = import_weights(config.family, tensors, model, path)
    if kinds := {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()} - {"float32"}:
        config.notes.append(f"the weights were {' and '.join(sorted(kinds))}, and are stored as float32")
    write_model(
        output, source, f"a model of type {config['model_type']}", settings, vocabularies, weights, overwrite=overwrite
    )
    return config.notes


def _check_source(source: Path) -> None:
    """Raises an error if a path is not a Hugging Face folder, and describes what it is instead."""
    if not source.is_dir():
        raise ModelError(f"{source}: no such file or folder")
    if (source / SETTINGS).is_file():
        raise ModelError(f"{source}: is already a Regard model: use it without importing it")
    if not (description := identify(source)).startswith("a Hugging Face model"):
        reason = f"it has no {CONFIG}" + (f"): {description}" if description else ")")
        raise ModelError(f"{source}: not a Hugging Face model ({reason}")
    for path in sorted(source.iterdir()):
        if path.is_file() and (advice := describe_pointer(path)):
            raise ModelError(f"{path}: {advice}")


def write_model(
    output: Path,
    source: Path,
    kind: str,
    settings: Settings,
    vocabularies: Vocabularies,
    weights: Mapping[str, Tensor],
    *,
    overwrite: bool,
) -> None:
    """Writes a model folder of Regard, with a card that describes the imported model."""
    count = sum(tensor.numel() for tensor in weights.values())
    card = (
        f"# {output.name}\n\nImported with Regard {regard.__version__} from {source.name}, {kind}. "
        f"{count:,} parameters.\n\nIts data, its licence and what it may be used for are those of the original.\n"
    )
    with whole_folder(output, source, EVERYTHING, overwrite=overwrite) as folder:
        write_tensors(folder / WEIGHTS, weights)
        write_text(folder / TOKENIZER, vocabularies.to_json())
        write_text(folder / CARD, card)
        write_text(folder / SETTINGS, dump(settings))
        write_manifest(folder)


def _other_settings(
    source: Path, place: Path, config: Config, task: str, vocabularies: Vocabularies
) -> dict[str, dict[str, Any]]:
    """Reads settings from files other than config.json."""
    tables: dict[str, dict[str, Any]] = {
        "tokenizer": {"vocabulary": max(300, vocabularies.target.size), "joint": config.shared}
    }
    if task == "translate":
        options = {**read_json_if_present(source / TOKENIZER_CONFIG), **read_json_if_present(place / TOKENIZER_CONFIG)}
        languages = {"source": options.get("source_lang"), "target": options.get("target_lang")}
        tables["data"] = {side: str(name) for side, name in languages.items() if name}
    if task in ("translate", "write"):
        tables["decoding"] = read_decoding(task, {**config.values, **read_json_if_present(source / GENERATION)})
    if (source / MODULES).is_file():
        if task != "embed":
            raise ModelError(f"{source / MODULES}: Regard does not support sentence models with a head")
        tables["embedding"] = _read_pooling(source, config)
    return tables


def _read_pooling(source: Path, config: Config) -> dict[str, Any]:
    """Reads the pooling settings of sentence-transformers."""
    modules = read_json(source / MODULES, list)
    try:
        steps = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    except (KeyError, TypeError):
        raise ModelError(f"{source / MODULES}: damaged: not a list of modules") from None
    if unknown := sorted(steps.keys() - {"Transformer", "Pooling", "Normalize"}):
        raise ModelError(f"{source / MODULES}: Regard does not support the module {unknown[0]}")
    folder = steps.get("Pooling", POOLING)
    if Path(folder).name != folder:
        raise ModelError(f"{source / MODULES}: lists the folder {folder}, which is not in this folder")
    path = source / folder / CONFIG
    options = read_json(path)
    chosen = {name for name, value in options.items() if name.startswith("pooling_mode_") and value is True}
    chosen = chosen or {f"pooling_mode_{options.get('pooling_mode')}"}
    modes = {"mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}
    names = sorted(name.removeprefix("pooling_mode_") for name in chosen)
    if len(names) != 1 or names[0] not in modes:
        found = " and ".join(names)
        raise ModelError(f"{path}: the pooling is {found}, but Regard supports only the mean and the first position")
    limit = read_json_if_present(source / "sentence_bert_config.json").get("max_seq_length")
    if limit and limit < config.get("max_position_embeddings", 0):
        config.notes.append(
            f"sentence-transformers truncates texts to {limit} tokens, but Regard to the maximum length of the model"
        )
    return {"pooling": modes[names[0]], "normalize": "Normalize" in steps}


def _pooling_files(settings: Settings) -> dict[str, Any]:
    """Returns the files with which sentence-transformers computes the same embeddings."""
    mean = settings.embedding.pooling == "mean"
    steps = [("", "Transformer"), (POOLING, "Pooling"), (NORMALIZE, "Normalize")]
    steps = steps if settings.embedding.normalize else steps[:2]
    path = "sentence_transformers.models."
    pooling = {"pooling_mode_cls_token": not mean, "pooling_mode_mean_tokens": mean}
    return {
        MODULES: [
            {"idx": i, "name": str(i), "path": folder, "type": path + kind} for i, (folder, kind) in enumerate(steps)
        ],
        f"{POOLING}/{CONFIG}": {"word_embedding_dimension": settings.model.width, **pooling},
    }


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Converts a model folder of Regard to a Hugging Face folder; returns notes for the user."""
    folder, output = Path(folder), Path(output)
    contents = read_folder(folder)
    settings, vocabularies = contents.settings, contents.vocabularies
    model = transformer_of(contents, "regard export")
    form = describe(settings, vocabularies)
    weights = foreign_weights(form, settings, vocabularies, parameters(model))
    files = form.files | (_pooling_files(settings) if settings.task == "embed" else {})
    with whole_folder(output, folder, EXPORTED, overwrite=overwrite) as place:
        write_tensors(place / SAFE, weights, {"format": "pt"})
        for name, content in files.items():
            write_text(place / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        write_vocabularies(place, vocabularies, settings)
    return [*form.notes, *tag_notes(settings)]
