"""Slot tokens, which replace the protected pieces of a text: a model moves them without spelling the pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from regard.tokens.protected_pieces import ProtectedPiece, find

SLOTS = tuple(f"slot:{number}" for number in range(1, 17))
"""The names of the tokens in `TokenizerSettings.tags`; a text with more pieces spells the others."""

ANY = 0.25
"""The share of training pairs with random slots, from which the model learns slots with high numbers."""


@dataclass(frozen=True, slots=True)
class Slotted:
    """A text with slots: the first text, the first slot, the second text ..."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]  # of the slots, from 1; one less than texts

    def fill(self, pieces: Mapping[int, str]) -> str:
        """Returns the text with pieces by the numbers of their slots; a slot without a piece is dropped."""
        filled = [pieces.get(number, "") + text for number, text in zip(self.numbers, self.texts[1:], strict=True)]
        return "".join([self.texts[0], *filled])


@dataclass(frozen=True, slots=True)
class CutText:
    """A text cut at its protected pieces."""

    texts: tuple[str, ...]  # before, between and after the pieces
    pieces: tuple[str, ...]

    @classmethod
    def at(cls, text: str, pieces: Sequence[ProtectedPiece]) -> CutText:
        """Cuts a text at these pieces of it, which are in order."""
        starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
        texts = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
        return cls(tuple(texts), tuple(piece.text for piece in pieces))

    @property
    def text(self) -> str:
        return self.slotted(range(1, len(self.pieces) + 1)).fill(dict(enumerate(self.pieces, 1)))

    def slotted(self, numbers: Sequence[int | None]) -> Slotted:
        """Returns the text with these slots instead of its pieces; a piece without a slot is spelt."""
        texts, used = [self.texts[0]], []
        for number, piece, text in zip(numbers, self.pieces, self.texts[1:], strict=True):
            if number is None:
                texts[-1] += piece + text
            else:
                used.append(number)
                texts.append(text)
        return Slotted(tuple(texts), tuple(used))


def slot_text(cut: CutText) -> tuple[Slotted, dict[int, str]]:
    """Returns a text to translate with slots in order, and the piece of each slot."""
    numbers = [number if number <= len(SLOTS) else None for number in range(1, len(cut.pieces) + 1)]
    return cut.slotted(numbers), dict(enumerate(cut.pieces[: len(SLOTS)], 1))


def slot_pair(source: str, target: str, dice: Random | None = None) -> tuple[Slotted, Slotted]:
    """Returns both sides of a pair with a slot for each piece that they share, numbered in the order of the source.

    Equal pieces are matched in their order. With `dice`, the numbers are sometimes random. A mnemonic such as & in
    E&xit is removed if both sides have one, because the model should not learn which letter it marks.
    """
    sides = [_without_mnemonics(source), _without_mnemonics(target)]
    if sides[0][1] != sides[1][1]:
        sides = [(source, 0), (target, 0)]
    cuts = [CutText.at(text, [p for p in find(text) if p.kind != "mnemonic"]) for text, _ in sides]
    shared = Counter(cuts[0].pieces) & Counter(cuts[1].pieces)
    known = [(piece, n) for piece, n in _occurrences(cuts[0]) if n < shared[piece]][: len(SLOTS)]
    numbers = list(range(1, len(known) + 1))
    if dice is not None and dice.random() < ANY:
        numbers = dice.sample(range(1, len(SLOTS) + 1), len(known))
    chosen = dict(zip(known, numbers, strict=True))
    first, second = (cut.slotted([chosen.get(each) for each in _occurrences(cut)]) for cut in cuts)
    return first, second


def _occurrences(cut: CutText) -> list[tuple[str, int]]:
    """Returns each piece with the number of equal pieces before it."""
    seen: Counter[str] = Counter()
    occurrences = []
    for piece in cut.pieces:
        occurrences.append((piece, seen[piece]))
        seen[piece] += 1
    return occurrences


def _without_mnemonics(text: str) -> tuple[str, int]:
    """Returns the text without the marks of its mnemonics, and their number."""
    mnemonics = [piece for piece in find(text) if piece.kind == "mnemonic"] if "&" in text else []
    return "".join(CutText.at(text, mnemonics).texts), len(mnemonics)
