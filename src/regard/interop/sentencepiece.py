"""SentencePiece models (Kudo & Richardson, 2018) as `tokenizers`, so that SentencePiece itself is not needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers

from regard.errors import ModelError
from regard.tokens.imported_vocabulary import HIDDEN

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
MANY = 1000


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class SentencePiece:
    """The contents of a SentencePiece model; the index of a piece is its id."""

    pieces: tuple[Piece, ...]
    model: int = BPE
    characters: bytes = b""  # the map that normalises characters
    prefix: bool = True  # a space is put before a text
    squeeze: bool = False  # of several spaces one is left, and none at the ends
    byte_fallback: bool = True

    @property
    def unknown(self) -> str:
        return next((piece.text for piece in self.pieces if piece.kind == UNKNOWN), "<unk>")

    @property
    def scores(self) -> dict[str, float]:
        """The pieces that text is cut into."""
        return {piece.text: piece.score for piece in self.pieces if piece.kind in (NORMAL, USER)}


def read_sentencepiece(path: Path) -> SentencePiece:
    """Reads the model in a .spm or .model file, which is a protocol buffer."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        found = parse(content)
    except (ValueError, IndexError, struct.error, TypeError):
        raise ModelError(f"{path}: damaged: not a SentencePiece model") from None
    if found.model not in (UNIGRAM, BPE) or not found.scores:
        raise ModelError(f"{path}: a SentencePiece model that is neither unigram nor BPE")
    try:
        as_tokenizer(found)
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{path}: damaged: {' '.join(str(error).split())}") from None
    return found


def parse(content: bytes) -> SentencePiece:
    """Parses ModelProto: field 1 has the pieces, 2 the training settings, 3 the normalization."""
    pieces, trainer, normalizer = [], b"", b""
    for number, value in fields(content):
        if number == 1:
            one = dict(fields(value))
            text = one[1].decode("utf-8") if 1 in one else ""
            pieces.append(Piece(text, struct.unpack("<f", one.get(2, bytes(4)))[0], one.get(3, NORMAL)))
        elif number == 2:
            trainer = value
        elif number == 3:
            normalizer = value
    training, normal = dict(fields(trainer)), dict(fields(normalizer))
    if training.get(24):
        raise ValueError("white space as suffix")
    return SentencePiece(
        tuple(pieces),
        model=training.get(3, UNIGRAM),
        characters=normal.get(2, b""),
        prefix=bool(normal.get(3, 1)),
        squeeze=bool(normal.get(4, 1)),
        byte_fallback=bool(training.get(35, 0)),
    )


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the numbered fields of a protocol buffer: whole numbers, or bytes."""
    at = 0
    while at < len(content):
        key, at = varint(content, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(content, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(f"wire type {kind}")
            size, at = varint(content, at)
        if at + size > len(content):
            raise ValueError("cut off")
        yield number, content[at : at + size]
        at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    """Reads a varint, seven bits a byte, lowest first, and returns it with its end."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("number too long")


def as_tokenizer(
    model: SentencePiece,
    specials: Sequence[str] = (),
    ids: Mapping[str, int] | None = None,
    codes: Sequence[str] = (),
    size: int = 0,
) -> tokenizers.Tokenizer:
    """Builds the same tokenizer with `tokenizers`; it recognises `specials` and `codes` that are spelt out in a text.

    `ids` renumbers the pieces, as Marian does with one vocabulary for the models of two languages. A piece that
    it lacks comes after the others and after `size`; one that the model lacks is never cut, but for single
    characters, which are found by their own name when nothing else is known of them.
    """
    ids = ids or {piece.text: number for number, piece in enumerate(model.pieces)}
    reserved = {piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL, UNUSED, BYTE)}
    reserved |= {*specials, *codes}
    strangers = {text for text in ids.keys() - model.scores.keys() - reserved if len(text) == 1}
    unigram = model.model == UNIGRAM
    tokenizer = tokenizers.Tokenizer(
        _unigram(model, ids, reserved | strangers, size) if unigram else _byte_pairs(model, ids, size)
    )
    tokenizer.normalizer = normalizers.Sequence(_normalizers(model, strangers))
    spaces = MANY if model.squeeze else int(model.prefix)  # at the beginning, which are no part of the text
    joined = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", spaces, 0)]
    tokenizer.decoder = decoders.Sequence([decoders.Replace(HIDDEN, ""), decoders.Replace(SPACE, " "), *joined])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    users = [] if unigram else [piece.text for piece in model.pieces if piece.kind == USER]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (*codes, *users) if text not in specials])
    return tokenizer


def _unigram(model: SentencePiece, ids: Mapping[str, int], named: set[str], size: int) -> models.Unigram:
    """Returns pieces by id with their scores; `named` pieces keep their names although no text is cut into them."""
    normal = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [-1.0]
    lowest, highest = min(normal), max(normal)
    never = 10 * min(lowest, -1.0)  # as a whole worse than all its characters
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
        entries.append((text if known else HIDDEN + text, round(score, 6)))  # JSON keeps no more digits for sure
    entries += [(text, round(score, 6)) for text, score in scores.items() if text not in ids]
    return models.Unigram(entries, unk_id=ids[model.unknown], byte_fallback=model.byte_fallback)


def _byte_pairs(model: SentencePiece, ids: Mapping[str, int], size: int) -> models.BPE:
    """Returns all merges of two pieces into a third, best pieces first."""
    scores = model.scores
    others = [text for text in scores if text not in ids]
    first = max(size, max(ids.values()) + 1)
    vocabulary = {**ids, **{text: first + number for number, text in enumerate(others)}}
    merges = []
    for text in sorted(scores, key=lambda text: -scores[text]):
        splits = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        merges += [(left, right) for left, right in splits if left in scores and right in scores]
    return models.BPE(
        vocab=vocabulary,
        merges=merges,
        unk_token=model.unknown,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


def _normalizers(model: SentencePiece, strangers: set[str]) -> list[normalizers.Normalizer]:
    """Returns the normalizer of a text before it is tokenized."""
    steps: list[normalizers.Normalizer] = []
    if model.characters:
        steps.append(normalizers.Precompiled(model.characters))
    if model.squeeze:
        steps += [normalizers.Replace(Regex("^ +|[ ▁]+$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if strangers and not model.byte_fallback:  # several unknown characters are one unknown piece, whoever knows them
        known = {" ", SPACE, *(text for text in model.scores if len(text) == 1)}
        listed = "".join(f"\\x{{{ord(character):X}}}" for character in sorted(known))
        unheard = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in strangers | known)
        steps.append(normalizers.Replace(Regex(f"[^{listed}]{{2,}}"), unheard))
    if model.prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    return steps
