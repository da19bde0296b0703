"""Converts SentencePiece models (Kudo & Richardson, 2018) to `tokenizers`, without the SentencePiece library."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers

from regard.errors import ModelError
from regard.interop.huggingface_files import read_bytes
from regard.tokens.imported_vocabulary import HIDDEN
from regard.tokens.tokenizer_checks import call_silently, is_failure

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
LONGEST_PIECE = 1000
MOST_CHARACTERS = 4_000_000
"""Maximum number of characters in all pieces, which limits the time for merging; no known vocabulary has half of it."""


class Piece(NamedTuple):
    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class SentencePiece:
    """The contents of a SentencePiece model; the index of a piece is its id."""

    pieces: tuple[Piece, ...]
    model: int = BPE
    characters: bytes = b""  # compiled map that normalizes characters
    prefix: bool = True  # whether a space is added at the beginning of a text
    squeeze: bool = False  # whether leading and trailing spaces are removed and repeated spaces merged
    byte_fallback: bool = True

    @property
    def unknown(self) -> str:
        return next((piece.text for piece in self.pieces if piece.kind == UNKNOWN), "<unk>")

    @cached_property
    def scores(self) -> dict[str, float]:
        """The scores of the pieces into which text is split."""
        return {piece.text: piece.score for piece in self.pieces if piece.kind in (NORMAL, USER)}


def read_sentencepiece(path: Path) -> SentencePiece:
    """Reads a SentencePiece model from a .spm or .model file, which is a protocol buffer."""
    content = read_bytes(path)
    try:
        model = _parse(content)
    except (ValueError, IndexError, struct.error, TypeError, AttributeError):
        raise ModelError(f"{path}: damaged: not a SentencePiece model") from None
    if sum(len(piece.text) for piece in model.pieces) > MOST_CHARACTERS:
        raise ModelError(f"{path}: its pieces have more than {MOST_CHARACTERS:,} characters")
    if model.model not in (UNIGRAM, BPE) or not model.scores:
        raise ModelError(f"{path}: the SentencePiece model is neither unigram nor BPE")
    if all(piece.text != model.unknown for piece in model.pieces):
        raise ModelError(f"{path}: damaged: no piece represents unknown characters")
    try:
        call_silently(lambda: as_tokenizer(model))
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ModelError(f"{path}: damaged: {' '.join(str(error).split())}") from None
    return model


def _parse(content: bytes) -> SentencePiece:
    """Parses a ModelProto: field 1 contains the pieces, 2 the training settings, 3 the normalization."""
    pieces: list[Piece] = []
    training: dict[int, Any] = {}
    normalization: dict[int, Any] = {}
    for number, value in fields(content):
        if number == 1:
            piece = {1: b"", 2: bytes(4), 3: NORMAL, **dict(fields(value))}
            text = piece[1][: 4 * LONGEST_PIECE + 1].decode("utf-8")  # a character has at most four bytes
            pieces.append(Piece(text, struct.unpack("<f", piece[2])[0], piece[3]))
            if len(text) > LONGEST_PIECE or not math.isfinite(pieces[-1].score):
                raise ValueError("a piece is too long or has no score")
        elif number == 2:
            training = dict(fields(value))
        elif number == 3:
            normalization = dict(fields(value))
    if training.get(24):
        raise ValueError("white space as a suffix is not supported")
    return SentencePiece(
        tuple(pieces),
        model=training.get(3, UNIGRAM),
        characters=normalization.get(2, b""),
        prefix=bool(normalization.get(3, 1)),
        squeeze=bool(normalization.get(4, 1)),
        byte_fallback=bool(training.get(35, 0)),
    )


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the field numbers and values of a protocol buffer; values are integers or bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(content, at)
        if size is None or at + size > len(content):
            raise ValueError(f"unknown wire type {kind}, or truncated")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Reads a variable-length integer of a protocol buffer; returns its value and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("number too long")


def as_tokenizer(
    model: SentencePiece,
    specials: Sequence[str] = (),
    ids: Mapping[str, int] | None = None,
    codes: Sequence[str] = (),
    size: int = 0,
) -> tokenizers.Tokenizer:
    """Builds an equivalent tokenizer with `tokenizers`, which recognizes `specials` and `codes` in texts.

    `ids` renumbers the pieces, as Marian does with one vocabulary for the models of two languages. Pieces that `ids`
    lacks are numbered after all others and after `size`. Text is only split into pieces of the model and, where the
    model has none, into single unknown characters.
    """
    ids = ids or {piece.text: number for number, piece in enumerate(model.pieces)}
    reserved = {piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL, UNUSED, BYTE)}
    reserved |= {*specials, *codes}
    added = {text for text in ids.keys() - model.scores.keys() - reserved if len(text) == 1}
    unigram = model.model == UNIGRAM
    tokenizer = tokenizers.Tokenizer(
        _unigram(model, ids, reserved | added, size) if unigram else _byte_pairs(model, ids, size)
    )
    tokenizer.normalizer = normalizers.Sequence(_normalizers(model, added))
    spaces = 1000 if model.squeeze else int(model.prefix)  # maximum number of leading spaces that decoding removes
    joined = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", spaces, 0)]
    tokenizer.decoder = decoders.Sequence([decoders.Replace(HIDDEN, ""), decoders.Replace(SPACE, " "), *joined])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    users = [] if unigram else [piece.text for piece in model.pieces if piece.kind == USER]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (*codes, *users) if text not in specials])
    return tokenizer


def _unigram(model: SentencePiece, ids: Mapping[str, int], named: set[str], size: int) -> models.Unigram:
    """Builds the unigram model; pieces in `named` stay in the vocabulary, but segmentation never produces them."""
    normal = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [-1.0]
    lowest, highest = min(normal), max(normal)
    never = 10 * min(lowest, -1.0)  # worse than splitting a piece into characters
    scores = dict(model.scores)
    for piece in model.pieces:
        if piece.kind == USER:
            scores[piece.text] = len(piece.text.encode()) * highest - 0.1
    places = {number: text for text, number in ids.items()}
    entries = []
    for number in range(max(size, max(places) + 1)):
        text = places.get(number, f"{number}")
        known = number in places and (text in scores or text in named)
        score = scores.get(text, never) if known else lowest
        entries.append((text if known else HIDDEN + text, round(score, 6)))  # JSON may not preserve more digits
    entries += [(text, round(score, 6)) for text, score in scores.items() if text not in ids]
    return models.Unigram(entries, unk_id=ids[model.unknown], byte_fallback=model.byte_fallback)


def _byte_pairs(model: SentencePiece, ids: Mapping[str, int], size: int) -> models.BPE:
    """Builds the BPE model from all merges of two pieces into a third, best pieces first."""
    scores = model.scores
    first = max(size, max(ids.values()) + 1)
    others = {text: number for number, text in enumerate((text for text in scores if text not in ids), first)}
    merges = []
    for text in sorted(scores, key=lambda text: -scores[text]):
        splits = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        merges += [(left, right) for left, right in splits if left in scores and right in scores]
    options = {"unk_token": model.unknown, "fuse_unk": True, "byte_fallback": model.byte_fallback}
    return models.BPE(vocab={**ids, **others}, merges=merges, **options)


def _normalizers(model: SentencePiece, added: set[str]) -> list[normalizers.Normalizer]:
    """Returns the steps that normalize a text before it is split; `added` characters have an id, but no score."""
    steps: list[normalizers.Normalizer] = []
    if model.characters:
        steps.append(normalizers.Precompiled(model.characters))
    if model.squeeze:
        steps += [normalizers.Replace(Regex("^ +|[ ▁]+$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if added and not model.byte_fallback:  # merges unknown characters into one unknown piece
        known = {" ", SPACE, *(text for text in model.scores if len(text) == 1)}
        listed = "".join(f"\\x{{{ord(character):X}}}" for character in sorted(known))
        unknown = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in added | known)
        steps.append(normalizers.Replace(Regex(f"[^{listed}]{{2,}}"), unknown))
    if model.prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    return steps
