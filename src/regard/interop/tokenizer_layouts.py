"""Builds a tokenizer from its files: tokenizer.json, WordPiece, byte-level BPE or SentencePiece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import ModelError
from regard.interop.huggingface_files import (
    LARGEST,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    read_json,
    read_json_if_present,
    read_text,
)
from regard.interop.model_families import families
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece
from regard.model_folder import TOKENIZER
from regard.tokens.tokenizer_checks import call_silently, is_failure, parse_tokenizer

Names = Mapping[str, str]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Files that make a tokenizer, and the classes of Transformers (without Fast at the end) that read them.

    Unless the files say otherwise, special tokens are spelled as in a family: one for writers, one for other models.
    """

    files: tuple[str, ...]
    classes: tuple[str, ...]
    spelled: tuple[str, str]
    build: Callable[[Sequence[Path], Options, Names], tokenizers.Tokenizer]


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer, how its special tokens are spelled, and the file it was read from."""

    tokenizer: tokenizers.Tokenizer
    names: Names
    path: Path


def read_tokenizer(place: Path, model_type: str, stated: object = None) -> TokenizerFiles:
    """Builds the tokenizer of a folder, or of one of its files; `stated` is the class that config.json names."""
    folder = place if place.is_dir() else place.parent
    options = read_json_if_present(folder / TOKENIZER_CONFIG)
    if place.is_dir():
        layout = _choose_layout(folder, model_type, options.get("tokenizer_class") or stated)
        paths = [folder / name for name in layout.files]
    else:
        layout, paths = _layout_of(place)
    writes = "bos_token" in families()[model_type].spelled
    spelled = families()[model_type if layout is JSON else layout.spelled[not writes]].spelled
    names = {**spelled, **special_tokens(folder)}
    tokenizer = layout.build(paths, {"add_bos_token": model_type in ("llama", "mistral"), **options}, names)
    if layout is not JSON:
        _add_tokens(tokenizer, folder / "added_tokens.json")
    return TokenizerFiles(tokenizer, names, paths[0])


def _choose_layout(folder: Path, model_type: str, stated: object) -> Layout:
    """Returns tokenizer.json, or the layout of the stated class, or of the family, or any that is complete."""
    complete = [layout for layout in LAYOUTS if all((folder / name).is_file() for name in layout.files)]
    if JSON in complete:
        return JSON
    if not complete:
        raise ModelError(f"{folder}: {_describe_missing(folder)}")
    name = str(stated or "").removesuffix("Fast")
    if name and name != "PreTrainedTokenizer" and not any(name in layout.classes for layout in LAYOUTS):
        raise ModelError(f"{folder}: its tokenizer is a {name}, which Regard reads from {TOKENIZER} alone: {SAVE}")
    own = f"{families()[model_type].classes[model_type]}Tokenizer"
    return max(complete, key=lambda layout: (name in layout.classes, own in layout.classes))


def _layout_of(path: Path) -> tuple[Layout, list[Path]]:
    """Returns the layout that a file belongs to by its name, and all files of that layout."""
    for layout in LAYOUTS:
        if path.name in layout.files:
            paths = [path.with_name(name) for name in layout.files]
            if not all(other.is_file() for other in paths):
                raise ModelError(f"{path.parent}: {_describe_missing(path.parent)}")
            return layout, paths
    by_suffix = {".json": JSON, ".txt": WORD_PIECES, ".model": SENTENCE_PIECES}
    if path.suffix not in by_suffix:
        known = " or ".join(" with ".join(layout.files) for layout in LAYOUTS)
        raise ModelError(f"{path}: is not a tokenizer that Regard can read: give {known}, or their folder")
    return by_suffix[path.suffix], [path]


SAVE = (
    "write one in Python with transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW), "
    "then import with --tokenizer NEW"
)
UNSUPPORTED = (
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm"),
    *("bpe.codes", "vocab.bpe", "tekken.json"),
)
"""Vocabularies of other families or programs, whose rules are not in their files."""


def _describe_missing(folder: Path) -> str:
    """Describes the files that a folder lacks to have a tokenizer."""
    if unsupported := [name for name in UNSUPPORTED if (folder / name).is_file()]:
        return f"has its vocabulary in {unsupported[0]}, which Regard does not read here: it needs {TOKENIZER}: {SAVE}"
    for name, other in (BYTE_PAIRS.files, BYTE_PAIRS.files[::-1]):
        if (folder / name).is_file():
            return f"has {name} but not {other}, which belongs to it: download it too"
    files = "tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm or tokenizer.model"
    return f"has no vocabulary: none of {files}. Download it too, or name it with --tokenizer"


def _add_tokens(tokenizer: tokenizers.Tokenizer, path: Path) -> None:
    """Adds the tokens of added_tokens.json, each with the id that the file gives it."""
    added = read_vocabulary(path) if path.is_file() else {}
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(added, key=lambda text: added[text])])
    for text, number in added.items():
        if (actual := tokenizer.token_to_id(text)) != number:
            raise ModelError(f"{path}: gives {text} the id {number}, but the next id after the vocabulary is {actual}")


def special_tokens(folder: Path) -> dict[str, str]:
    """Returns the special tokens that the files of a folder name, as text or as an object with the text in it."""
    spelled = {}
    for file in (SPECIAL_TOKENS, TOKENIZER_CONFIG):
        for name, value in read_json_if_present(folder / file).items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                spelled[name] = text
    return spelled


def load(path: Path) -> tokenizers.Tokenizer:
    """Reads the tokenizer in a file, without its truncation and padding."""
    tokenizer = parse_tokenizer(read_json(path, largest=LARGEST), path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def word_pieces(paths: Sequence[Path], options: Options, names: Names) -> tokenizers.Tokenizer:
    """Builds the tokenizer of BERT from a file with one piece per line."""
    (path,) = paths
    pieces = read_text(path).removesuffix("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if names["unk_token"] not in vocabulary:
        reason = f"not a vocabulary of BERT, or unk_token is missing in {SPECIAL_TOKENS}"
        raise ModelError(f"{path}: has no line {names['unk_token']}: {reason}")
    uncased = all(piece == piece.lower() for piece in pieces if not piece.startswith("["))
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        strip_accents=None if options.get("strip_accents") is None else bool(options["strip_accents"]),
        lowercase=bool(options.get("do_lower_case", uncased)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _add_special_tokens(tokenizer, names, vocabulary, "{begin} $A {end} $B:1 {end}:1")
    return tokenizer


def byte_level(paths: Sequence[Path], options: Options, names: Names) -> tokenizers.Tokenizer:
    """Builds the tokenizer of GPT-2 or RoBERTa from its pieces and merges of bytes."""
    path, merges = paths
    vocabulary = read_vocabulary(path)
    lines = read_text(merges).removesuffix("\n").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        model = call_silently(lambda: models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs]))
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ModelError(f"{merges}: damaged, or not of {path.name}: {' '.join(str(error).split())}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(options.get("add_prefix_space")))
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, names, vocabulary, "{begin} $A {end} {end} $B {end}", names.get("mask_token"))
    return tokenizer


def _add_special_tokens(
    tokenizer: tokenizers.Tokenizer, names: Names, vocabulary: Iterable[str], pair: str, mask: str | None = None
) -> None:
    """Declares the special tokens and puts them around texts; the space before `mask` belongs to it."""
    vocabulary = set(vocabulary)
    tokens = [text for text in dict.fromkeys(names.values()) if text in vocabulary]
    tokenizer.add_special_tokens(
        [AddedToken(text, lstrip=text == mask, normalized=False, special=True) for text in tokens]
    )
    begin, end = names.get("cls_token"), names.get("sep_token")
    if begin in vocabulary and end in vocabulary:
        put_around(tokenizer, f"{begin} $A {end}", pair.format(begin=begin, end=end))


def sentence_pieces(paths: Sequence[Path], options: Options, names: Names) -> tokenizers.Tokenizer:
    """Builds the tokenizer of Llama, which begins texts with a token unless its files say otherwise."""
    model = read_sentencepiece(paths[0])
    tokenizer = as_tokenizer(model, list(dict.fromkeys(names.values())))
    begin = names.get("bos_token")
    if begin in {piece.text for piece in model.pieces} and options.get("add_bos_token"):
        put_around(tokenizer, f"{begin} $A", "")
    return tokenizer


def read_vocabulary(path: Path) -> dict[str, int]:
    """Reads the ids of the pieces in a JSON file."""
    content: dict[str, int] = read_json(path, largest=LARGEST)
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise ModelError(f"{path}: damaged: not a table of pieces and their ids")
    if (highest := max(content.values())) > HIGHEST_ID:
        raise ModelError(f"{path}: has the id {highest:,}; Regard reads ids up to {HIGHEST_ID:,}")
    return content


HIGHEST_ID = 1_000_000


def put_around(tokenizer: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Adds special tokens to every text, and to every pair of texts."""
    used = {word.split(":")[0] for word in (single + " " + pair).split() if not word.startswith("$")}
    ids = [(text, tokenizer.token_to_id(text)) for text in sorted(used)]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair or None, special_tokens=ids)


JSON = Layout((TOKENIZER,), (), ("", ""), lambda paths, _options, _names: load(paths[0]))
WORD_PIECES = Layout(("vocab.txt",), ("BertTokenizer", "DistilBertTokenizer"), ("bert", "bert"), word_pieces)
BYTE_PAIRS = Layout(
    ("vocab.json", "merges.txt"), ("GPT2Tokenizer", "RobertaTokenizer"), ("gpt2", "roberta"), byte_level
)
SENTENCE_PIECES = Layout(
    ("tokenizer.model",), ("LlamaTokenizer", "MistralTokenizer"), ("llama", "roberta"), sentence_pieces
)
LAYOUTS = (JSON, WORD_PIECES, BYTE_PAIRS, SENTENCE_PIECES)
