"""Vocabularies of imported models (BERT, GPT-2, Marian, Llama ...), which segment text in their own way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers

from regard.errors import ModelError
from regard.tokens.tokenizer import Encoding, Specials, Tokenizer, refuse_surrogates
from regard.tokens.tokenizer_checks import MOST_PIECES, parse_tokenizer, refusing_panics

HIDDEN = "\U000f0000"
"""Prefix of a piece that no text contains, such as a piece of the other language of a translator."""


class ImportedTokenizer(Tokenizer):
    """Segments and joins text as the tokenizer does that the imported model was trained with.

    `size` is the number of ids that the model knows; an id beyond it becomes the unknown one.
    """

    def __init__(self, model: tokenizers.Tokenizer, specials: Specials, size: int) -> None:
        self.model, self.specials, self.size = model, specials, size
        self.tags, self.slots = {}, {}
        self._spells_bytes = "ByteLevel" in json.dumps(json.loads(model.to_str())["decoder"])

    @classmethod
    def restore(cls, content: dict[str, Any], path: Path) -> ImportedTokenizer:
        """Returns the tokenizer of the content of a file that `to_json` wrote."""
        model = parse_tokenizer(content["tokenizer"], path)
        try:
            specials, size = Specials(**content["specials"]), int(content["size"])
            optional = [number for number in (specials.unknown, specials.mask) if number is not None]
            ids = [specials.pad, specials.begin, specials.end, *optional, *specials.tags]
            if not 0 < size <= MOST_PIECES:
                raise ValueError(f"a vocabulary of {size} tokens")  # noqa: TRY301
            inside = all(type(number) is int and 0 <= number < size for number in ids)
            if type(specials.prompt) is not bool or type(specials.between) is not int or not 0 < specials.between < 9:
                raise ValueError("prompt or between has an impossible value")  # noqa: TRY301
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None
        if not inside:
            raise ModelError(f"{path}: damaged tokenizer: a special id is outside the vocabulary of {size} tokens")
        return cls(model, specials, size)

    def to_json(self) -> str:
        """Returns the JSON from which `restore` makes the tokenizer."""
        specials = {name: value for name, value in asdict(self.specials).items() if name != "tags"}
        about = f'{{"specials": {json.dumps(specials)}, "size": {self.size}, '
        return f'{about}"tokenizer": {self.model.to_str()}}}'

    def encode(self, text: str) -> Encoding:
        """Returns the subwords of a text, without begin and end."""
        refuse_surrogates([text])
        with refusing_panics():
            encoding = self.model.encode(text, add_special_tokens=False)
        return Encoding(self._known(encoding.ids), self.pieces(encoding.ids), encoding.offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin and end."""
        refuse_surrogates(texts)
        with refusing_panics():
            encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._known(encoding.ids) for encoding in encodings]

    def encode_continuation(self, text: str) -> list[int]:
        """Returns the ids of a text that continues other ids."""
        return self.encode_batch([text])[0]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word of a text."""
        return self.encode_batch([f" {word}" for word in words] if self._spells_bytes else words)

    def _known(self, ids: list[int]) -> list[int]:
        if max(ids, default=0) < self.size:
            return ids
        unknown = self.specials.pad if self.specials.unknown is None else self.specials.unknown
        return [token if token < self.size else unknown for token in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special tokens are left out."""
        left_out = {*self.specials.never_generated, self.specials.end}
        known = [token for token in ids if token not in left_out]
        with refusing_panics():
            return str(self.model.decode(known, skip_special_tokens=True))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns each id in readable form: ▁ is a space, ⟨E4⟩ a byte that is only a part of a character."""
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
        """Reports for each id whether it continues a word that the id before it began."""
        shown = self.pieces(range(self.size))
        if any(piece.startswith("##") for piece in shown):
            return [piece.startswith("##") for piece in shown]
        return [piece[:1].isalpha() or piece.startswith("⟨") for piece in shown]

    def can_continue(self) -> list[bool]:
        """Reports for each id whether the next one can continue its word."""
        return [piece[-1:].isalnum() or piece.endswith("⟩") for piece in self.pieces(range(self.size))]


def _bytes_of_characters() -> dict[str, int]:
    """Returns the byte of each character by which byte-level vocabularies (GPT-2) write bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = _bytes_of_characters()
