"""The layouts in which the files of a tokenizer come: tokenizer.json, WordPiece, bytes in pairs, SentencePiece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ModelError
from regard.interop.huggingface_files import read_json, read_json_if_there
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece

TOKENIZER, ABOUT, SPECIAL, ADDED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
Spelt = Mapping[str, str]
SQUARE = {
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}
ANGLED = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
ENDOFTEXT = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MARIAN = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


@dataclass(frozen=True)
class Files:
    """The folder of a tokenizer's files, and what the small ones among them say."""

    folder: Path
    family: str
    about: Mapping[str, Any]
    spelt: Spelt

    @property
    def writes(self) -> bool:
        """Returns whether the model continues texts."""
        return self.family in ("gpt2", "llama", "mistral")


@dataclass(frozen=True)
class Layout:
    """Files that make a tokenizer, and the classes of Transformers (without Fast at the end) that read them."""

    files: tuple[str, ...]
    classes: tuple[str, ...]
    families: tuple[str, ...]
    spelt: Callable[[Files], Spelt]
    build: Callable[[Files, Spelt, list[Path]], tokenizers.Tokenizer]


@dataclass(frozen=True)
class Built:
    """A tokenizer, how its special tokens are spelt, and the file it was read from."""

    tokenizer: tokenizers.Tokenizer
    names: Spelt
    path: Path


def read_tokenizer(place: Path, family: str, stated: object = None) -> Built:
    """Builds the tokenizer of a folder, or of one of its files; `stated` is the class that config.json names."""
    folder = place if place.is_dir() else place.parent
    about = read_json_if_there(folder / ABOUT)
    files = Files(folder, family, about, {**spellings(read_json_if_there(folder / SPECIAL)), **spellings(about)})
    if place.is_dir():
        layout = choose_layout(files, about.get("tokenizer_class") or stated)
        paths = [folder / name for name in layout.files]
    else:
        layout, paths = layout_of(place)
    names = {**layout.spelt(files), **files.spelt}
    tokenizer = layout.build(files, names, paths)
    if layout is not JSON:
        _add_tokens(tokenizer, folder / ADDED)
    return Built(tokenizer, names, paths[0])


def choose_layout(files: Files, stated: object) -> Layout:
    """Returns tokenizer.json, or the layout of the stated class, or of the family, or any that is complete."""
    found = [layout for layout in LAYOUTS if all((files.folder / name).is_file() for name in layout.files)]
    if JSON in found:
        return JSON
    if not found:
        raise ModelError(f"{files.folder}: {_missing(files.folder)}")
    name = str(stated or "").removesuffix("Fast")
    if name and name != "PreTrainedTokenizer" and not any(name in layout.classes for layout in LAYOUTS):
        raise ModelError(
            f"{files.folder}: its tokenizer is a {name}, which Regard reads from {TOKENIZER} alone: {MAKE}"
        )
    return max(found, key=lambda layout: (name in layout.classes, files.family in layout.families))


def layout_of(path: Path) -> tuple[Layout, list[Path]]:
    """Returns the layout that a file belongs to by its name, and all files of that layout."""
    for layout in LAYOUTS:
        if path.name in layout.files:
            paths = [path.with_name(name) for name in layout.files]
            if not all(other.is_file() for other in paths):
                raise ModelError(f"{path.parent}: {_missing(path.parent)}")
            return layout, paths
    by_suffix = {".json": JSON, ".txt": WORD_PIECES, ".model": SENTENCE_PIECES}
    if path.suffix not in by_suffix:
        raise ModelError(f"{path}: is not a tokenizer that Regard reads: give {' or '.join(KNOWN)}, or their folder")
    return by_suffix[path.suffix], [path]


MAKE = (
    "write one in Python with transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW), "
    "then import with --tokenizer NEW"
)


def _missing(folder: Path) -> str:
    """Describes the files that a folder lacks to have a tokenizer."""
    if strange := [name for name in UNREAD if (folder / name).is_file()]:
        return f"has its vocabulary in {strange[0]}, which Regard does not read here: it needs {TOKENIZER}: {MAKE}"
    for name, other in (BYTE_PAIRS.files, BYTE_PAIRS.files[::-1]):
        if (folder / name).is_file():
            return f"has {name} but not {other}, which belongs to it: download it too"
    told = "tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm or tokenizer.model"
    return f"has no vocabulary: none of {told}. Download it too, or name it with --tokenizer"


def _add_tokens(tokenizer: tokenizers.Tokenizer, path: Path) -> None:
    """Adds the tokens of added_tokens.json, each with the id that stands there."""
    added = read_vocabulary(path) if path.is_file() else {}
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(added, key=lambda text: added[text])])
    for text, number in added.items():
        if (got := tokenizer.token_to_id(text)) != number:
            raise ModelError(f"{path}: gives {text} the id {number}, but after the vocabulary comes {got}")


def spellings(content: Mapping[str, Any]) -> dict[str, str]:
    """Returns the special tokens that a file names, as text or as an object with the text in it."""
    found = {}
    for name, value in content.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def load(path: Path) -> tokenizers.Tokenizer:
    """Reads the tokenizer in a file, without its truncation and padding."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def word_pieces(path: Path, about: Mapping[str, Any], names: Spelt) -> tokenizers.Tokenizer:
    """BERT's: a piece a line."""
    pieces = read_lines(path)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if names["unk_token"] not in vocabulary:
        raise ModelError(
            f"{path}: has no line {names['unk_token']}: not a vocabulary of BERT, or unk_token is missing in {SPECIAL}"
        )
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


def byte_level(path: Path, merges: Path, about: Mapping[str, Any], names: Spelt) -> tokenizers.Tokenizer:
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
    """Reads the ids of the pieces in a JSON file."""
    content = read_json(path)
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise ModelError(f"{path}: damaged: not a table of pieces and their ids")
    return content


def put_around(tokenizer: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Lets special tokens be added to one text, and to two."""
    used = {word.split(":")[0] for word in (single + " " + pair).split() if not word.startswith("$")}
    ids = [(text, tokenizer.token_to_id(text)) for text in sorted(used)]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair or None, special_tokens=ids)


def sentence_pieces(path: Path, files: Files, names: Spelt) -> tokenizers.Tokenizer:
    """Llama's: a SentencePiece model, whose texts begin with a token of their own unless the files say otherwise."""
    model = read_sentencepiece(path)
    tokenizer = as_tokenizer(model, list(dict.fromkeys(names.values())))
    known = {piece.text for piece in model.pieces}
    begin = names.get("bos_token")
    if begin in known and files.about.get("add_bos_token", files.family in ("llama", "mistral")):
        put_around(tokenizer, f"{begin} $A", "")
    return tokenizer


FAMILIES: Mapping[str, Spelt] = {
    "bert": SQUARE,
    "distilbert": SQUARE,
    "roberta": ANGLED,
    "xlm-roberta": ANGLED,
    "gpt2": ENDOFTEXT,
    "llama": LLAMA,
    "mistral": LLAMA,
    "marian": MARIAN,
}
"""How each family spells its special tokens unless the files say otherwise."""
JSON = Layout(
    ("tokenizer.json",),
    (),
    (),
    lambda files: FAMILIES[files.family],
    lambda _files, _names, paths: load(paths[0]),
)
WORD_PIECES = Layout(
    ("vocab.txt",),
    ("BertTokenizer", "DistilBertTokenizer"),
    ("bert", "distilbert"),
    lambda _files: SQUARE,
    lambda files, names, paths: word_pieces(paths[0], files.about, names),
)
BYTE_PAIRS = Layout(
    ("vocab.json", "merges.txt"),
    ("GPT2Tokenizer", "RobertaTokenizer"),
    ("gpt2", "roberta"),
    lambda files: ENDOFTEXT if files.writes else ANGLED,
    lambda files, names, paths: byte_level(paths[0], paths[1], files.about, names),
)
SENTENCE_PIECES = Layout(
    ("tokenizer.model",),
    ("LlamaTokenizer",),
    ("llama", "mistral"),
    lambda files: LLAMA if files.writes else ANGLED,
    lambda files, names, paths: sentence_pieces(paths[0], files, names),
)
LAYOUTS = (JSON, WORD_PIECES, BYTE_PAIRS, SENTENCE_PIECES)
KNOWN = tuple(" with ".join(layout.files) for layout in LAYOUTS)
UNREAD = ("spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm", "bpe.codes", "vocab.bpe", "tekken.json")
"""Vocabularies of other families or programs, which take a rule that stands in no file."""
