"""Builds tokenizers from their files: tokenizer.json, WordPiece, byte-level BPE or SentencePiece."""

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
    """The files of one type of tokenizer, and the Transformers classes (without the suffix Fast) that read them.

    `spelled` names two families, one for writers and one for other models, whose special tokens are the default.
    """

    files: tuple[str, ...]
    classes: tuple[str, ...]
    spelled: tuple[str, str]
    build: Callable[[Sequence[Path], Options, Names], tokenizers.Tokenizer]


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer with its special tokens, and the file from which it was read."""

    tokenizer: tokenizers.Tokenizer
    names: Names
    path: Path


def read_tokenizer(place: Path, model_type: str, stated: object = None) -> TokenizerFiles:
    """Builds a tokenizer from a folder or one of its files; `stated` is the tokenizer class in config.json."""
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
    """Chooses tokenizer.json if it exists, else the layout of the stated class, of the family, or any complete one."""
    complete = [layout for layout in LAYOUTS if all((folder / name).is_file() for name in layout.files)]
    if JSON in complete:
        return JSON
    if not complete:
        raise ModelError(f"{folder}: {_describe_missing(folder)}")
    name = str(stated or "").removesuffix("Fast")
    if name and name != "PreTrainedTokenizer" and not any(name in layout.classes for layout in LAYOUTS):
        raise ModelError(f"{folder}: Regard can read the tokenizer {name} only from {TOKENIZER}: {SAVE}")
    own = f"{families()[model_type].classes[model_type]}Tokenizer"
    return max(complete, key=lambda layout: (name in layout.classes, own in layout.classes))


def _layout_of(path: Path) -> tuple[Layout, list[Path]]:
    """Returns the layout to which a file belongs, judging by its name, and all files of that layout."""
    for layout in LAYOUTS:
        if path.name in layout.files:
            paths = [path.with_name(name) for name in layout.files]
            if not all(other.is_file() for other in paths):
                raise ModelError(f"{path.parent}: {_describe_missing(path.parent)}")
            return layout, paths
    by_suffix = {".json": JSON, ".txt": WORD_PIECES, ".model": SENTENCE_PIECES}
    if path.suffix not in by_suffix:
        known = " or ".join(" with ".join(layout.files) for layout in LAYOUTS)
        raise ModelError(f"{path}: not a tokenizer that Regard can read: pass {known}, or their folder")
    return by_suffix[path.suffix], [path]


SAVE = (
    "write one in Python with transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW), "
    "then import with --tokenizer NEW"
)
UNSUPPORTED = (
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm"),
    *("bpe.codes", "vocab.bpe", "tekken.json"),
)
"""Vocabulary files that do not contain the rules of their tokenizers."""


def _describe_missing(folder: Path) -> str:
    if unsupported := [name for name in UNSUPPORTED if (folder / name).is_file()]:
        return f"Regard cannot read the vocabulary in {unsupported[0]}, but needs {TOKENIZER}: {SAVE}"
    for name, other in (BYTE_PAIRS.files, BYTE_PAIRS.files[::-1]):
        if (folder / name).is_file():
            return f"{name} exists, but {other}, which belongs to it, is missing: download it too"
    files = "tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm or tokenizer.model"
    return f"there is no vocabulary: none of {files} exists. Download it too, or specify it with --tokenizer"


def _add_tokens(tokenizer: tokenizers.Tokenizer, path: Path) -> None:
    """Adds the tokens of added_tokens.json; raises an error if their ids do not follow the vocabulary."""
    added = read_vocabulary(path) if path.is_file() else {}
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in sorted(added, key=lambda text: added[text])])
    for text, number in added.items():
        if (actual := tokenizer.token_to_id(text)) != number:
            raise ModelError(f"{path}: the id of {text} is {number}, but the next id after the vocabulary is {actual}")


def special_tokens(folder: Path) -> dict[str, str]:
    """Returns the special tokens declared in the files of a folder, as texts or as objects that contain the text."""
    spelled = {}
    for file in (SPECIAL_TOKENS, TOKENIZER_CONFIG):
        for name, value in read_json_if_present(folder / file).items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                spelled[name] = text
    return spelled


def load(path: Path) -> tokenizers.Tokenizer:
    """Reads a tokenizer.json without its truncation and padding."""
    tokenizer = parse_tokenizer(read_json(path, largest=LARGEST), path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def word_pieces(paths: Sequence[Path], options: Options, names: Names) -> tokenizers.Tokenizer:
    """Builds a WordPiece tokenizer as in BERT from a file with one piece per line."""
    (path,) = paths
    pieces = read_text(path).removesuffix("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if names["unk_token"] not in vocabulary:
        reason = f"this is not a vocabulary of BERT, or unk_token is missing in {SPECIAL_TOKENS}"
        raise ModelError(f"{path}: there is no line {names['unk_token']}: {reason}")
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
    """Builds a byte-level BPE tokenizer as in GPT-2 and RoBERTa from its pieces and merges."""
    path, merges = paths
    vocabulary = read_vocabulary(path)
    lines = read_text(merges).removesuffix("\n").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        model = call_silently(lambda: models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs]))
    except BaseException as error:
        if not is_failure(error):
            raise
        reason = " ".join(str(error).split())
        raise ModelError(f"{merges}: damaged, or does not belong to {path.name}: {reason}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(options.get("add_prefix_space")))
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, names, vocabulary, "{begin} $A {end} {end} $B {end}", names.get("mask_token"))
    return tokenizer


def _add_special_tokens(
    tokenizer: tokenizers.Tokenizer, names: Names, vocabulary: Iterable[str], pair: str, mask: str | None = None
) -> None:
    """Declares the special tokens and adds them around texts; the token `mask` includes the space before it."""
    vocabulary = set(vocabulary)
    tokens = [text for text in dict.fromkeys(names.values()) if text in vocabulary]
    tokenizer.add_special_tokens(
        [AddedToken(text, lstrip=text == mask, normalized=False, special=True) for text in tokens]
    )
    begin, end = names.get("cls_token"), names.get("sep_token")
    if begin in vocabulary and end in vocabulary:
        put_around(tokenizer, f"{begin} $A {end}", pair.format(begin=begin, end=end))


def sentence_pieces(paths: Sequence[Path], options: Options, names: Names) -> tokenizers.Tokenizer:
    """Builds a SentencePiece tokenizer as in Llama, which adds its begin token to texts if `add_bos_token` is true."""
    model = read_sentencepiece(paths[0])
    tokenizer = as_tokenizer(model, list(dict.fromkeys(names.values())))
    begin = names.get("bos_token")
    if begin in {piece.text for piece in model.pieces} and options.get("add_bos_token"):
        put_around(tokenizer, f"{begin} $A", "")
    return tokenizer


def read_vocabulary(path: Path) -> dict[str, int]:
    """Reads a JSON file that contains the ids of all pieces."""
    content: dict[str, int] = read_json(path, largest=LARGEST)
    if not content or not all(type(number) is int and number >= 0 for number in content.values()):
        raise ModelError(f"{path}: damaged: not a table of pieces and their ids")
    if (highest := max(content.values())) > HIGHEST_ID:
        raise ModelError(f"{path}: contains the id {highest:,}, but Regard supports ids only up to {HIGHEST_ID:,}")
    return content


HIGHEST_ID = 1_000_000


def put_around(tokenizer: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Makes a tokenizer add special tokens to texts and pairs of texts, by templates such as "[CLS] $A [SEP]"."""
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
