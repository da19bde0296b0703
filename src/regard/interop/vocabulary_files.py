"""The vocabulary files of a Hugging Face folder, read and written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from regard.atomic_files import write_text
from regard.errors import InputError, ModelError
from regard.interop.huggingface_files import read_json_if_there
from regard.interop.model_families import Config
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece
from regard.interop.tokenizer_layouts import (
    ABOUT,
    MARIAN,
    SPECIAL,
    TOKENIZER,
    Built,
    load,
    put_around,
    read_tokenizer,
    read_vocabulary,
    spellings,
)
from regard.settings import DataSettings, Settings
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.slot_tokens import SLOTS
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.tokens.vocabulary_learning import SPECIALS

TARGET = "target"
"""The folder with the second vocabulary, where the two languages have one each."""
ODD = "a\u6f22\U0001f600\u0378"
"""A text with characters that many vocabularies lack."""


@dataclass(frozen=True)
class Roles:
    """The special tokens that begin and end a text: the first of these names that a vocabulary has."""

    begin: tuple[str, ...]
    end: tuple[str, ...]
    between: int = 1


BERT_ROLES = Roles(("cls_token", "bos_token"), ("sep_token", "eos_token"))
ROBERTA_ROLES = Roles(BERT_ROLES.begin, BERT_ROLES.end, between=2)
WRITER_ROLES = Roles(("bos_token", "cls_token"), ("eos_token", "sep_token"))
MARIAN_ROLES = Roles(("pad_token",), ("eos_token",))
ROLES = {
    "bert": BERT_ROLES,
    "distilbert": BERT_ROLES,
    "roberta": ROBERTA_ROLES,
    "xlm-roberta": ROBERTA_ROLES,
    "gpt2": WRITER_ROLES,
    "llama": WRITER_ROLES,
    "mistral": WRITER_ROLES,
    "marian": MARIAN_ROLES,
}


def check_place(place: Path) -> None:
    """Refuses a file or folder of a vocabulary that is not there."""
    if not place.exists():
        raise InputError(
            f"{place}: no such file or folder: --tokenizer is {TOKENIZER}, or a folder with the vocabulary"
        )


def check_sizes(vocabularies: Vocabularies, place: Path) -> None:
    """Refuses a vocabulary that cannot be that of the model: tables of tokens are often filled up, but not by much."""
    for tokenizer in (vocabularies.source, vocabularies.target):
        pieces = len(tokenizer.model.get_vocab(with_added_tokens=False))
        if not 0.9 * tokenizer.size <= pieces <= tokenizer.size:
            raise ModelError(f"{place}: has {pieces:,} pieces, and the model knows {tokenizer.size:,}")


def read_vocabularies(place: Path, config: Config) -> Vocabularies:
    """Reads the vocabulary in a folder, or the two of a translator; `place` may also be the file of one vocabulary."""
    family = config["model_type"]
    if family == "marian" and (place / "source.spm").is_file() and not (place / TOKENIZER).is_file():
        return _read_marian(place, config)
    built = read_tokenizer(place, family, config.get("tokenizer_class"))
    source = known(built, config, "vocab_size")
    second = place / TARGET / TOKENIZER
    if family != "marian" or not second.is_file():
        return Vocabularies(source, source)
    return Vocabularies(source, known(Built(load(second), built.names, second), config, _target_size(config)))


def _read_marian(folder: Path, config: Config) -> Vocabularies:
    """Reads the SentencePiece models of two languages, whose pieces have the ids of one vocabulary, or of two."""
    about = read_json_if_there(folder / ABOUT)
    names = {**MARIAN, **spellings(read_json_if_there(folder / SPECIAL)), **spellings(about)}
    first = folder / "vocab.json"
    second = folder / "target_vocab.json"
    sides = [("source.spm", first, "vocab_size")]
    sides.append(("target.spm", second if second.is_file() else first, _target_size(config)))
    found = []
    for name, path, size in sides:
        ids = read_vocabulary(path)
        model = read_sentencepiece(folder / name)
        if names["unk_token"] not in ids or model.unknown not in ids:
            raise ModelError(f"{path}: has no piece {names['unk_token']}")
        codes = [text for text in ids if text.startswith(">>") and text.endswith("<<")]
        specials = [text for text in dict.fromkeys(names.values()) if text in ids]
        tokenizer = as_tokenizer(model, specials, ids, codes, config[size])
        put_around(tokenizer, f"$A {names['eos_token']}", f"$A $B {names['eos_token']}")
        found.append(known(Built(tokenizer, names, path), config, size))
    return Vocabularies(*found)


def _target_size(config: Config) -> str:
    shared = config.get("share_encoder_decoder_embeddings", True)
    return "vocab_size" if shared or config.get("decoder_vocab_size") is None else "decoder_vocab_size"


def known(built: Built, config: Config, size: str) -> ImportedTokenizer:
    """Returns a tokenizer with the special ids that the model knows."""
    tokenizer, names, path = built.tokenizer, built.names, built.path
    roles, limit = ROLES[config["model_type"]], config[size]

    def find(*roles: str) -> int | None:
        spelt = [tokenizer.token_to_id(names[role]) for role in roles if role in names]
        stated = [config.get(f"{role}_id") for role in roles]
        numbers = [*spelt, *(next(iter(number), None) if isinstance(number, list) else number for number in stated)]
        return next((number for number in numbers if type(number) is int and 0 <= number < limit), None)

    end = find(*roles.end)
    begin = find(*roles.begin) if config["model_type"] != "marian" else config["decoder_start_token_id"]
    begin = end if begin is None else begin
    if end is None or begin is None:
        name = roles.end[0]
        raise ModelError(
            f"{path}: the vocabulary has no {name.replace('_', ' ')}: say in {SPECIAL} which {name} it has"
        )
    if type(begin) is not int or not 0 <= begin < limit:
        raise ModelError(f"{config.path}: decoder_start_token_id is {begin!r}, which is no id of the vocabulary")
    pad = find("pad_token")
    try:
        one, two, _ = tokenizer.encode("a").ids, tokenizer.encode("a", "b").ids, tokenizer.encode(ODD)
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{path}: a vocabulary that cannot cut text: {' '.join(str(error).split())}") from None
    specials = Specials(
        pad=end if pad is None else pad,
        begin=begin,
        end=end,
        unknown=find("unk_token"),
        mask=find("mask_token"),
        prompt=begin in one[:1],
        between=max(1, two.count(end) - 1) if tokenizer.post_processor else roles.between,
    )
    return ImportedTokenizer(tokenizer, specials, limit)


# Writing


def write_vocabularies(folder: Path, vocabularies: Vocabularies, settings: Settings) -> None:
    """Writes the files of one vocabulary, and the second vocabulary of a translator in a folder of its own."""
    _write(folder, vocabularies.source, settings)
    if vocabularies.target is not vocabularies.source:
        _write(folder / TARGET, vocabularies.target, settings)


def _write(folder: Path, tokenizer: Tokenizer, settings: Settings) -> None:
    task, data, unnamed = settings.task, settings.data, DataSettings()
    model = plain(tokenizer, task)
    special = {name: model.id_to_token(number) for name, number in special_ids(tokenizer.specials, task).items()}
    about: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": settings.model.max_length,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *(["token_type_ids"] if settings.model.segments else []), "attention_mask"],
        **special,
    }
    if task == "translate" and not data.directions and (data.source, data.target) != (unnamed.source, unnamed.target):
        about |= {"source_lang": data.source, "target_lang": data.target}
    write_text(folder / TOKENIZER, model.to_str())
    write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False, indent=2) + "\n")
    write_text(folder / SPECIAL, json.dumps(special, ensure_ascii=False, indent=2) + "\n")


def special_ids(specials: Specials, task: str) -> dict[str, int]:
    """Returns the foreign names of special ids."""
    if task == "translate":
        found = {"pad_token": specials.pad, "eos_token": specials.end}
    elif task == "write":
        found = {"bos_token": specials.begin, "eos_token": specials.end}
        if specials.pad not in (specials.begin, specials.end):
            found["pad_token"] = specials.pad
    else:
        found = {"pad_token": specials.pad, "cls_token": specials.begin, "sep_token": specials.end}
    if specials.unknown is not None:
        found["unk_token"] = specials.unknown
    if specials.mask is not None and task not in ("translate", "write"):
        found["mask_token"] = specials.mask
    return found


def plain(tokenizer: Tokenizer, task: str) -> tokenizers.Tokenizer:
    """Returns the tokenizer with its special tokens declared and added to texts, as other libraries expect."""
    model = tokenizers.Tokenizer.from_str(tokenizer.model.to_str())
    if isinstance(tokenizer, ImportedTokenizer):
        return model
    pad, begin, end, unknown, mask = SPECIALS
    declared = [AddedToken(text, normalized=False, special=True) for text in (pad, begin, end, unknown)]
    declared += [AddedToken(f"<tag:{tag}>", rstrip=True, normalized=False, special=True) for tag in tokenizer.tags]
    declared += [AddedToken(f"<tag:{SLOTS[n - 1]}>", normalized=False, special=True) for n in tokenizer.slots.values()]
    model.add_special_tokens([*declared, AddedToken(mask, lstrip=True, normalized=False, special=True)])
    match task:
        case "translate":
            put_around(model, f"$A {end}", f"$A $B {end}")
        case "write":
            put_around(model, f"{begin} $A", f"{begin} $A $B")
        case _:
            put_around(model, f"{begin} $A {end}", f"{begin} $A {end} $B:1 {end}:1")
    return model
