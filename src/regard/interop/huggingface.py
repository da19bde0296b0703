"""Models of Hugging Face become models of Regard, and the other way round."""

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
from regard.foreign_files import describe_pointer, identify
from regard.interop.export_folder import tag_notes, whole_folder
from regard.interop.family_recognition import infer_family
from regard.interop.huggingface_config import describe
from regard.interop.huggingface_files import CONFIG, GENERATION, SAFE, read_json, read_json_if_there, read_weights
from regard.interop.model_families import Config, Tables, build_settings, choose_family
from regard.interop.tokenizer_layouts import ABOUT, SPECIAL
from regard.interop.vocabulary_files import TARGET, check_place, check_sizes, read_vocabularies, write_vocabularies
from regard.interop.weight_names import give, take
from regard.model_folder import CARD, EVERYTHING, SETTINGS, TOKENIZER, WEIGHTS
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Vocabularies
from regard.weights import build_model, parameters, read_folder, transformer_of, write_tensors

MODULES, POOLING, NORMALIZE = "modules.json", "1_Pooling", "2_Normalize"
THEIRS = (CONFIG, SAFE, GENERATION, "tokenizer.json", ABOUT, SPECIAL, TARGET, MODULES, POOLING, NORMALIZE, "README.md")


def import_model(
    source: Path | str, output: Path | str, tokenizer: Path | str | None = None, *, overwrite: bool = False
) -> list[str]:
    """Writes the model in a Hugging Face folder as a Regard folder; returns what the user should know of it.

    `tokenizer` is a file or folder with the vocabulary, in place of the one in the folder.
    """
    source, output = Path(source), Path(output)
    check_source(source)
    place = source if tokenizer is None else Path(tokenizer)
    check_place(place)
    config = Config(source / CONFIG, read_json(source / CONFIG))
    if config.get("model_type"):
        choose_family(config)  # refuses an unknown one before the weights are read
    path, tensors = read_weights(source)
    config = infer_family(config, tensors)
    family = choose_family(config)
    table = family.table(config)
    named = {table.plain(name): tensor for name, tensor in tensors.items()}
    found = {name: tensor for name, tensor in named.items() if name is not None}
    tables = family.settings(config, found)
    vocabularies = read_vocabularies(place, config)
    if tokenizer is not None:
        check_sizes(vocabularies, place)
    settings = build_settings(config, tables | _beside(source, place, config, tables["task"], vocabularies))
    with torch.device("meta"):
        shape = build_model(settings, vocabularies)
    weights = take(table, found, shape, path)
    if kinds := {str(tensor.dtype).removeprefix("torch.") for tensor in found.values()} - {"float32"}:
        config.notes.append(f"the weights were {' and '.join(sorted(kinds))}, and are stored as float32")
    about = f"a model of type {config['model_type']}"
    with whole_folder(output, source, EVERYTHING, overwrite=overwrite) as place:
        write_model(place, settings, vocabularies, weights, write_card(output.name, source.name, about, weights))
    return config.notes


def check_source(source: Path) -> None:
    """Refuses what is not a folder of Hugging Face, and says what it is instead."""
    if not source.is_dir():
        raise ModelError(f"{source}: no such file or folder")
    if (source / SETTINGS).is_file():
        raise ModelError(f"{source}: is a Regard model already: use it as it is")
    if not (said := identify(source)).startswith("a Hugging Face model"):
        raise ModelError(f"{source}: not a Hugging Face model (it has no {CONFIG}){said and f': {said}'}")
    for path in sorted(source.iterdir()):
        if path.is_file() and (said := describe_pointer(path)):
            raise ModelError(f"{path}: {said}")


def write_model(
    place: Path, settings: Settings, vocabularies: Vocabularies, weights: Mapping[str, Tensor], card: str
) -> None:
    """Writes the files of a Regard folder."""
    write_tensors(place / WEIGHTS, weights)
    write_text(place / TOKENIZER, vocabularies.to_json())
    write_text(place / CARD, card)
    write_text(place / SETTINGS, dump(settings))


def write_card(name: str, source: str, about: str, weights: Mapping[str, Tensor]) -> str:
    """Returns the model card as Markdown."""
    count = sum(tensor.numel() for tensor in weights.values())
    return (
        f"# {name}\n\nImported with Regard {regard.__version__} from {source}, {about}. {count:,} parameters.\n\n"
        "Its data, its licence and what it may be used for are those of the original.\n"
    )


def _beside(source: Path, place: Path, config: Config, task: str, vocabularies: Vocabularies) -> Tables:
    """Reads the settings in files other than config.json."""
    joint = config.get("share_encoder_decoder_embeddings", True)
    found: Tables = {"tokenizer": {"vocabulary": max(300, vocabularies.target.size), "joint": joint}}
    if task == "translate":
        about = {**read_json_if_there(source / ABOUT), **read_json_if_there(place / ABOUT)}
        languages = {"source": about.get("source_lang"), "target": about.get("target_lang")}
        found["data"] = {side: str(name) for side, name in languages.items() if name}
    if task in ("translate", "write"):
        told = {**config.values, **read_json_if_there(source / GENERATION)}
        found["decoding"] = _searching(told) if task == "translate" else _drawing(told)
    if (source / MODULES).is_file():
        if task != "embed":
            raise ModelError(f"{source / MODULES}: a sentence model with a head, which Regard does not have")
        found["embedding"] = _pooling(source, config)
    return found


def _searching(told: Mapping[str, Any]) -> Tables:
    penalty = told.get("length_penalty")
    return {
        "beam": told.get("num_beams") or 1,
        "length_penalty": 1.0 if penalty is None else penalty,
        "penalty": "power",
    }


def _drawing(told: Mapping[str, Any]) -> Tables:
    if told.get("do_sample") is None:
        return {}
    names = ("temperature", "top_k", "top_p", "min_p") if told["do_sample"] else ()
    found = {name: told[name] for name in (*names, "repetition_penalty") if told.get(name) is not None}
    return found if told["do_sample"] else {**found, "temperature": 0.0}


def _pooling(source: Path, config: Config) -> Tables:
    """Reads how sentence-transformers pools the vectors of a text."""
    kinds = {"Transformer", "Pooling", "Normalize"}
    try:
        modules = json.loads((source / MODULES).read_text(encoding="utf-8"))
        steps = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{source / MODULES}: damaged: not a list of modules") from None
    if strange := sorted(steps.keys() - kinds):
        raise ModelError(f"{source / MODULES}: has a step {strange[0]}, which Regard does not have")
    path = source / steps.get("Pooling", POOLING) / CONFIG
    told = read_json(path)
    chosen = {name for name, value in told.items() if name.startswith("pooling_mode_") and value is True}
    chosen = chosen or {f"pooling_mode_{told.get('pooling_mode')}"}
    modes = {"mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}
    names = sorted(name.removeprefix("pooling_mode_") for name in chosen)
    if len(names) != 1 or names[0] not in modes:
        raise ModelError(f"{path}: pools by {' and '.join(names)}: Regard takes the mean or the first position")
    limit = read_json_if_there(source / "sentence_bert_config.json").get("max_seq_length")
    if limit and limit < config.get("max_position_embeddings", 0):
        config.notes.append(f"sentence-transformers cuts texts after {limit} tokens, Regard where the positions end")
    return {"pooling": modes[names[0]], "normalize": "Normalize" in steps}


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Writes the model of a Regard folder as a Hugging Face folder; returns what the user should know of it."""
    folder, output = Path(folder), Path(output)
    contents = read_folder(folder)
    settings, vocabularies = contents.settings, contents.vocabularies
    model = transformer_of(contents, "regard export")
    form = describe(settings, vocabularies)
    weights = form.adapt(give(form.table, form.turn(parameters(model))))
    with whole_folder(output, folder, THEIRS, overwrite=overwrite) as place:
        write_tensors(place / SAFE, weights, {"format": "pt"})
        for name, content in form.files.items():
            write_text(place / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        write_vocabularies(place, vocabularies, settings)
    return [*form.notes, *tag_notes(settings)]
