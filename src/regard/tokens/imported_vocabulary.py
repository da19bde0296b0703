"""Tokenizers of imported models (BERT, GPT-2, Marian, Llama ...), each with its own rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers

from regard.errors import ModelError
from regard.tokens.tokenizer import Encoding, Specials, Tokenizer, reject_surrogates
from regard.tokens.tokenizer_checks import MOST_PIECES, parse_tokenizer, tokenizer_errors

HIDDEN = "\U000f0000"
"""Prefix of pieces that no text can produce, such as the pieces of a translator's other language."""


class ImportedTokenizer(Tokenizer):
    """The tokenizer that an imported model was trained with.

    `size` is the number of ids that the model knows; larger ids are replaced by the unknown id.
    """

    def __init__(self, model: tokenizers.Tokenizer, specials: Specials, size: int) -> None:
        self.model, self.specials, self.size = model, specials, size
        self.tags, self.slots = {}, {}
        self._spells_bytes = "ByteLevel" in json.dumps(json.loads(model.to_str())["decoder"])

    @classmethod
    def restore(cls, content: dict[str, Any], path: Path) -> ImportedTokenizer:
        """Restores a tokenizer from the parsed result of `to_json`."""
        model = parse_tokenizer(content["tokenizer"], path)
        try:
            specials, size = Specials(**content["specials"]), int(content["size"])
            optional = [number for number in (specials.unknown, specials.mask) if number is not None]
            ids = [specials.pad, specials.begin, specials.end, *optional, *specials.tags]
            if not 0 < size <= MOST_PIECES:
                raise ValueError(f"a vocabulary of {size} tokens")  # noqa: TRY301
            inside = all(type(number) is int and 0 <= number < size for number in ids)
            if type(specials.prompt) is not bool or type(specials.between) is not int or not 0 < specials.between < 9:
                raise ValueError("invalid value of prompt or between")  # noqa: TRY301
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None
        if not inside:
            raise ModelError(f"{path}: damaged tokenizer: a special id is outside the vocabulary of {size} tokens")
        return cls(model, specials, size)

    def to_json(self) -> str:
        specials = {name: value for name, value in asdict(self.specials).items() if name != "tags"}
        about = f'{{"specials": {json.dumps(specials)}, "size": {self.size}, '
        return f'{about}"tokenizer": {self.model.to_str()}}}'

    def encode(self, text: str) -> Encoding:
        reject_surrogates([text])
        with tokenizer_errors():
            encoding = self.model.encode(text, add_special_tokens=False)
        return Encoding(self._known(encoding.ids), self.pieces(encoding.ids), encoding.offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        reject_surrogates(texts)
        with tokenizer_errors():
            encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._known(encoding.ids) for encoding in encodings]

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode_batch([f" {word}" for word in words] if self._spells_bytes else words)

    def _known(self, ids: list[int]) -> list[int]:
        if max(ids, default=0) < self.size:
            return ids
        unknown = self.specials.pad if self.specials.unknown is None else self.specials.unknown
        return [token if token < self.size else unknown for token in ids]

    def decode(self, ids: Iterable[int]) -> str:
        left_out = {*self.specials.never_generated, self.specials.end}
        known = [token for token in ids if token not in left_out]
        with tokenizer_errors():
            return str(self.model.decode(known, skip_special_tokens=True))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns each id in readable form, in which ▁ stands for a space and ⟨E4⟩ for a byte of a character."""
        return [self._piece(self.model.id_to_token(token)) for token in ids]

    def _piece(self, piece: str | None) -> str:
        if piece is None:
            return "⟨?⟩"
        if not self._spells_bytes or any(character not in BYTES for character in piece):
            return piece.removeprefix(HIDDEN)
        spelt = bytes(BYTES[character] for character in piece)
        try:
            return spelt.decode().replace(" ", "▁")
        except UnicodeDecodeError:
            return "".join(f"⟨{byte:02X}⟩" for byte in spelt)

    def continues(self) -> list[bool]:
        shown = self.pieces(range(self.size))
        if any(piece.startswith("##") for piece in shown):
            return [piece.startswith("##") for piece in shown]
        return [piece[:1].isalpha() or piece.startswith("⟨") for piece in shown]

    def can_continue(self) -> list[bool]:
        return [piece[-1:].isalnum() or piece.endswith("⟩") for piece in self.pieces(range(self.size))]


def _bytes_of_characters() -> dict[str, int]:
    """Maps the characters that stand for bytes in byte-level vocabularies (GPT-2) to these bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = _bytes_of_characters()
