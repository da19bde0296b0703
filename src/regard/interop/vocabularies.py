"""The vocabulary files of a Hugging Face folder, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ModelError
from regard.folder import write_text
from regard.interop.checkpoints import read_json, read_json_if_there
from regard.interop.families import Config
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece
from regard.settings import DataSettings, Settings
from regard.text.imported import ImportedTokenizer
from regard.text.slots import SLOTS
from regard.text.tokenizer import Specials, Tokenizer, Vocabularies
from regard.text.vocabulary import SPECIALS

TOKENIZER, ABOUT, SPECIAL, ADDED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
TARGET = "target"
"""The folder with the second vocabulary, where the two languages have one each."""


@dataclass(frozen=True)
class Roles:
    """Which of a family's special tokens is what, and how they are spelt unless the files say otherwise."""

    begin: str
    end: str
    spelt: Mapping[str, str]
    between: int = 1


BERT_ROLES = Roles(
    "cls_token",
    "sep_token",
    {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    },
)
ROBERTA_ROLES = Roles(
    "cls_token",
    "sep_token",
    {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"},
    between=2,
)
GPT2_ROLES = Roles("bos_token", "eos_token", {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})
LLAMA_ROLES = Roles("bos_token", "eos_token", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
MARIAN_ROLES = Roles("pad_token", "eos_token", {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
ROLES = {
    "bert": BERT_ROLES,
    "distilbert": BERT_ROLES,
    "roberta": ROBERTA_ROLES,
    "xlm-roberta": ROBERTA_ROLES,
    "gpt2": GPT2_ROLES,
    "llama": LLAMA_ROLES,
    "mistral": LLAMA_ROLES,
    "marian": MARIAN_ROLES,
}


def read_vocabularies(folder: Path, config: Config) -> Vocabularies:
    """The vocabulary of a folder, or the two of a translator."""
    roles = ROLES[config["model_type"]]
    about = read_json_if_there(folder / ABOUT)
    names = {**roles.spelt, **spellings(read_json_if_there(folder / SPECIAL)), **spellings(about)}
    if (folder / "source.spm").is_file() and not (folder / TOKENIZER).is_file():
        return _read_marian(folder, config, names)
    tokenizer = read_tokenizer(folder, about, names)
    source = known(tokenizer, config, names, "vocab_size", folder)
    second = folder / TARGET / TOKENIZER
    if config["model_type"] != "marian" or not second.is_file():
        return Vocabularies(source, source)
    return Vocabularies(source, known(load(second), config, names, _target_size(config), second))


def spellings(content: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens that a file names: as text, or as an object with the text in it."""
    found = {}
    for name, value in content.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def read_tokenizer(folder: Path, about: Mapping[str, Any], names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """What cuts and joins text: tokenizer.json or, where it is not there, what is made of older files."""
    if (folder / TOKENIZER).is_file():
        return load(folder / TOKENIZER)
    if (folder / "vocab.txt").is_file():
        tokenizer = word_pieces(folder / "vocab.txt", about, names)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        tokenizer = byte_level(folder / "vocab.json", folder / "merges.txt", about, names)
    elif (folder / "tokenizer.model").is_file():
        tokenizer = as_tokenizer(read_sentencepiece(folder / "tokenizer.model"), list(dict.fromkeys(names.values())))
        if about.get("add_bos_token", True):
            put_around(tokenizer, f"{names['bos_token']} $A", "")
    else:
        told = "tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm or tokenizer.model"
        raise ModelError(f"{folder}: has no vocabulary: none of {told}")
    added = read_vocabulary(folder / ADDED) if (folder / ADDED).is_file() else {}
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(added, key=lambda text: added[text])])
    return tokenizer


def load(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a file, without the cutting off and filling up that it may prescribe."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def word_pieces(path: Path, about: Mapping[str, Any], names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """BERT's: a piece a line."""
    pieces = read_lines(path)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    specials = list(dict.fromkeys(text for text in names.values() if text in vocabulary))
    uncased = all(piece == piece.lower() for piece in pieces if not piece.startswith("["))
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(about.get("tokenize_chinese_chars", True)),
        strip_accents=None if about.get("strip_accents") is None else bool(about["strip_accents"]),
        lowercase=bool(about.get("do_lower_case", uncased)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    begin, end = names["cls_token"], names["sep_token"]
    if begin in vocabulary and end in vocabulary:
        put_around(tokenizer, f"{begin} $A {end}", f"{begin} $A {end} $B:1 {end}:1")
    return tokenizer


def byte_level(path: Path, merges: Path, about: Mapping[str, Any], names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """GPT-2's and RoBERTa's: merges of bytes."""
    vocabulary = read_vocabulary(path)
    pairs = [tuple(line.split(" ")) for line in read_lines(merges) if line and not line.startswith("#version")]
    try:
        model = models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs])
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{merges}: damaged, or not of {path.name}: {' '.join(str(error).split())}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(about.get("add_prefix_space")))
    tokenizer.decoder = decoders.ByteLevel()
    specials = list(dict.fromkeys(text for text in names.values() if text in vocabulary))
    gap = names.get("mask_token")  # the space before a gap belongs to it
    tokenizer.add_special_tokens(
        [AddedToken(text, lstrip=text == gap, normalized=False, special=True) for text in specials]
    )
    begin, end = names.get("cls_token"), names.get("sep_token")
    if begin in vocabulary and end in vocabulary:
        put_around(tokenizer, f"{begin} $A {end}", f"{begin} $A {end} {end} $B {end}")
    return tokenizer


def read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise ModelError(f"{path}: damaged: not UTF-8") from None


def read_vocabulary(path: Path) -> dict[str, int]:
    """The ids of the pieces in a JSON file."""
    content = read_json(path)
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise ModelError(f"{path}: damaged: not a table of pieces and their ids")
    return content


def put_around(tokenizer: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Lets special tokens be added to one text, and to two."""
    used = {word.split(":")[0] for word in (single + " " + pair).split() if not word.startswith("$")}
    ids = [(text, tokenizer.token_to_id(text)) for text in sorted(used)]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair or None, special_tokens=ids)


def _read_marian(folder: Path, config: Config, names: Mapping[str, str]) -> Vocabularies:
    """The SentencePiece models of two languages, whose pieces have the ids of one vocabulary, or of two."""
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
        found.append(known(tokenizer, config, names, size, path))
    return Vocabularies(*found)


def _target_size(config: Config) -> str:
    shared = config.get("share_encoder_decoder_embeddings", True)
    return "vocab_size" if shared or config.get("decoder_vocab_size") is None else "decoder_vocab_size"


def known(
    tokenizer: tokenizers.Tokenizer, config: Config, names: Mapping[str, str], size: str, path: Path
) -> ImportedTokenizer:
    """A tokenizer with the ids that are no text, as far as the model knows them."""
    roles, limit = ROLES[config["model_type"]], config[size]

    def find(name: str) -> int | None:
        spelt = names.get(name)
        number = None if spelt is None else tokenizer.token_to_id(spelt)
        if number is None and isinstance(told := config.get(f"{name}_id"), int | list):
            number = told if isinstance(told, int) else next(iter(told), None)
        return number if number is None or 0 <= number < limit else None

    end = find(roles.end)
    begin = find(roles.begin) if config["model_type"] != "marian" else config["decoder_start_token_id"]
    begin = end if begin is None else begin
    if end is None or begin is None:
        raise ModelError(f"{path}: the vocabulary has no {roles.end.replace('_', ' ')}")
    if begin not in range(limit):
        raise ModelError(f"{config.path}: decoder_start_token_id is {begin!r}, which is no id of the vocabulary")
    pad = find("pad_token")
    try:
        one, two = tokenizer.encode("a").ids, tokenizer.encode("a", "b").ids
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
    """The files of one vocabulary, and in a folder of its own the second one of a translator."""
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
    """Their names of the ids that are no text."""
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
    """The tokenizer with its special tokens declared and put around texts, as others expect it of theirs."""
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
