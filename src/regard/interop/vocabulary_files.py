"""Reads and writes the vocabularies of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from regard.atomic_files import write_text
from regard.errors import InputError, ModelError
from regard.interop.config_reading import Config
from regard.interop.huggingface_files import SPECIAL_TOKENS, TOKENIZER_CONFIG
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece
from regard.interop.tokenizer_layouts import (
    TokenizerFiles,
    load,
    put_around,
    read_tokenizer,
    read_vocabulary,
    special_tokens,
)
from regard.model_folder import TOKENIZER
from regard.settings import DataSettings, Settings
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.placeholder_slots import SLOTS
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.tokens.tokenizer_checks import call_silently, is_failure
from regard.tokens.vocabulary_learning import SPECIALS

TARGET = "target"
"""The subfolder with the second vocabulary, if source and target have separate ones."""
RARE = "a\u6f22\U0001f600\u0378"
"""A text with characters that many vocabularies lack."""


def check_exists(place: Path) -> None:
    """Raises an error if the file or folder of a vocabulary does not exist."""
    if not place.exists():
        advice = f"--tokenizer must be {TOKENIZER}, or a folder with the vocabulary"
        raise InputError(f"{place}: no such file or folder: {advice}")


def check_sizes(vocabularies: Vocabularies, place: Path) -> None:
    """Raises an error if a vocabulary does not match the model; embedding tables may be padded by up to 10 %."""
    for tokenizer in (vocabularies.source, vocabularies.target):
        pieces = len(tokenizer.model.get_vocab(with_added_tokens=False))
        if not 0.9 * tokenizer.size <= pieces <= tokenizer.size:
            raise ModelError(f"{place}: has {pieces:,} pieces, but the model's vocabulary has {tokenizer.size:,}")


def read_vocabularies(place: Path, config: Config) -> Vocabularies:
    """Reads the one or two vocabularies in a folder; `place` may also be the file of a single vocabulary."""
    model_type = config["model_type"]
    marian = config.family.title == "MarianMT"
    apart = not config.shared and config.get("decoder_vocab_size") is not None
    target_size = config["decoder_vocab_size" if apart else "vocab_size"]
    if marian and (place / "source.spm").is_file() and not (place / TOKENIZER).is_file():
        ids = "target_vocab.json" if (place / "target_vocab.json").is_file() else "vocab.json"
        return Vocabularies(
            _read_marian(place, config, "source.spm", "vocab.json", config["vocab_size"]),
            _read_marian(place, config, "target.spm", ids, target_size),
        )
    files = read_tokenizer(place, model_type, config.get("tokenizer_class"))
    source = build_tokenizer(files, config, config["vocab_size"])
    second = place / TARGET / TOKENIZER
    if not marian or not second.is_file():
        return Vocabularies(source, source)
    return Vocabularies(source, build_tokenizer(TokenizerFiles(load(second), files.names, second), config, target_size))


def _read_marian(folder: Path, config: Config, model_name: str, ids_name: str, size: int) -> ImportedTokenizer:
    """Reads the SentencePiece model of one language of MarianMT, with the ids from a separate vocabulary file."""
    names = {**config.family.spelled, **special_tokens(folder)}
    path = folder / ids_name
    ids, model = read_vocabulary(path), read_sentencepiece(folder / model_name)
    if names["unk_token"] not in ids or model.unknown not in ids:
        raise ModelError(f"{path}: there is no piece {names['unk_token']}")
    codes = [text for text in ids if text.startswith(">>") and text.endswith("<<")]
    specials = [text for text in dict.fromkeys(names.values()) if text in ids]
    tokenizer = as_tokenizer(model, specials, ids, codes, size)
    put_around(tokenizer, f"$A {names['eos_token']}", f"$A $B {names['eos_token']}")
    return build_tokenizer(TokenizerFiles(tokenizer, names, path), config, size)


def build_tokenizer(files: TokenizerFiles, config: Config, size: int) -> ImportedTokenizer:
    """Builds a tokenizer with the ids of its special tokens."""
    tokenizer, names, path = files.tokenizer, files.names, files.path
    family = config.family

    def find(*roles: str) -> int | None:
        """Returns the first valid id of these special tokens, from the vocabulary or else from config.json."""
        stated = [config.get(f"{role}_id") for role in roles]
        numbers = [tokenizer.token_to_id(names[role]) for role in roles if role in names]
        numbers += [next(iter(number), None) if isinstance(number, list) else number for number in stated]
        return next((number for number in numbers if type(number) is int and 0 <= number < size), None)

    end = find(*family.end)
    begin = config["decoder_start_token_id"] if family.title == "MarianMT" else find(*family.begin)
    begin = end if begin is None else begin
    if end is None or begin is None:
        role = family.end[0]
        advice = f"specify {role} in {SPECIAL_TOKENS}"
        raise ModelError(f"{path}: the vocabulary has no {role.replace('_', ' ')}: {advice}")
    if type(begin) is not int or not 0 <= begin < size:
        raise ModelError(f"{config.path}: decoder_start_token_id is {begin!r}, which is not an id in the vocabulary")
    pad = find("pad_token")
    try:
        single, pair, _ = call_silently(
            lambda: [tokenizer.encode(*texts).ids for texts in (("a",), ("a", "b"), (RARE,))]
        )
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ModelError(
            f"{path}: this vocabulary cannot split text into tokens: {' '.join(str(error).split())}"
        ) from None
    specials = Specials(
        pad=end if pad is None else pad,
        begin=begin,
        end=end,
        unknown=find("unk_token"),
        mask=find("mask_token"),
        prompt=begin in single[:1],
        between=max(1, pair.count(end) - 1) if tokenizer.post_processor else family.between,
    )
    return ImportedTokenizer(tokenizer, specials, size)


# Writing


def write_vocabularies(folder: Path, vocabularies: Vocabularies, settings: Settings) -> None:
    """Writes the vocabulary files; a second vocabulary is written to the subfolder `target`."""
    _write(folder, vocabularies.source, settings)
    if vocabularies.target is not vocabularies.source:
        _write(folder / TARGET, vocabularies.target, settings)


def _write(folder: Path, tokenizer: Tokenizer, settings: Settings) -> None:
    data, unnamed = settings.data, DataSettings()
    model = _with_special_tokens(tokenizer, settings.task)
    special = {name: model.id_to_token(each) for name, each in _special_ids(tokenizer.specials, settings.task).items()}
    options: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": settings.model.max_length,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *(["token_type_ids"] if settings.model.segments else []), "attention_mask"],
        **special,
    }
    named = not data.directions and (data.source, data.target) != (unnamed.source, unnamed.target)
    if settings.task == "translate" and named:
        options |= {"source_lang": data.source, "target_lang": data.target}
    write_text(folder / TOKENIZER, model.to_str())
    for file, content in ((TOKENIZER_CONFIG, options), (SPECIAL_TOKENS, special)):
        write_text(folder / file, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _special_ids(specials: Specials, task: str) -> dict[str, int]:
    ids: dict[str, int | None] = {"eos_token": specials.end, "unk_token": specials.unknown, "pad_token": specials.pad}
    if task == "write":
        ids["bos_token"] = specials.begin
        if specials.pad in (specials.begin, specials.end):
            del ids["pad_token"]
    elif task != "translate":
        del ids["eos_token"]
        ids |= {"cls_token": specials.begin, "sep_token": specials.end, "mask_token": specials.mask}
    return {name: number for name, number in ids.items() if number is not None}


def _with_special_tokens(tokenizer: Tokenizer, task: str) -> tokenizers.Tokenizer:
    """Returns a copy of the tokenizer that declares its special tokens and adds them to texts, as libraries expect."""
    model = tokenizers.Tokenizer.from_str(tokenizer.model.to_str())
    if isinstance(tokenizer, ImportedTokenizer):
        return model
    pad, begin, end, unknown, mask = SPECIALS
    declared = [AddedToken(text, normalized=False, special=True) for text in (pad, begin, end, unknown)]
    declared += [AddedToken(f"<tag:{tag}>", rstrip=True, normalized=False, special=True) for tag in tokenizer.tags]
    declared += [AddedToken(f"<tag:{SLOTS[n - 1]}>", normalized=False, special=True) for n in tokenizer.slots.values()]
    model.add_special_tokens([*declared, AddedToken(mask, lstrip=True, normalized=False, special=True)])
    templates = {"translate": (f"$A {end}", f"$A $B {end}"), "write": (f"{begin} $A", f"{begin} $A $B")}
    put_around(model, *templates.get(task, (f"{begin} $A {end}", f"{begin} $A {end} $B:1 {end}:1")))
    return model
