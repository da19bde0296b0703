"""Replaces protected pieces of a text with slot tokens, which a model can move without having to spell the pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from regard.tokens.protected_pieces import ProtectedPiece, find

SLOTS = tuple(f"slot:{number}" for number in range(1, 17))
"""Names of the slot tokens in `TokenizerSettings.tags`. If a text has more pieces, the rest are encoded as text."""

ANY = 0.25
"""Share of training pairs with random slot numbers, from which the model also learns high numbers."""


@dataclass(frozen=True, slots=True)
class Slotted:
    """A text with slots: the first part of the text, the first slot, the second part, and so on."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]  # slot numbers, counted from 1; one fewer than `texts`

    def fill(self, pieces: Mapping[int, str]) -> str:
        """Replaces each slot with the piece for its number; slots without a piece are dropped."""
        filled = [pieces.get(number, "") + text for number, text in zip(self.numbers, self.texts[1:], strict=True)]
        return "".join([self.texts[0], *filled])


@dataclass(frozen=True, slots=True)
class CutText:
    """A text split at its protected pieces."""

    texts: tuple[str, ...]  # text before, between and after the pieces
    pieces: tuple[str, ...]

    @classmethod
    def at(cls, text: str, pieces: Sequence[ProtectedPiece]) -> CutText:
        """Splits a text at its pieces, which must be in order."""
        starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
        texts = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
        return cls(tuple(texts), tuple(piece.text for piece in pieces))

    @property
    def text(self) -> str:
        return self.slotted(range(1, len(self.pieces) + 1)).fill(dict(enumerate(self.pieces, 1)))

    def slotted(self, numbers: Sequence[int | None]) -> Slotted:
        """Replaces each piece with the slot of this number, or keeps its text if there is no number."""
        texts, used = [self.texts[0]], []
        for number, piece, text in zip(numbers, self.pieces, self.texts[1:], strict=True):
            if number is None:
                texts[-1] += piece + text
            else:
                used.append(number)
                texts.append(text)
        return Slotted(tuple(texts), tuple(used))


def slot_text(cut: CutText) -> tuple[Slotted, dict[int, str]]:
    """Returns a text to translate with numbered slots, and the piece for each slot number."""
    numbers = [number if number <= len(SLOTS) else None for number in range(1, len(cut.pieces) + 1)]
    return cut.slotted(numbers), dict(enumerate(cut.pieces[: len(SLOTS)], 1))


def slot_pair(source: str, target: str, dice: Random | None = None) -> tuple[Slotted, Slotted]:
    """Replaces the pieces that both sides of a pair share with slots, numbered in the order of the source.

    Equal pieces are matched in order. With `dice`, the numbers are sometimes random. A mnemonic, such as & in E&xit, is
    removed if both sides have one, because the model should not learn which letter it marks.
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
    seen: Counter[str] = Counter()
    occurrences = []
    for piece in cut.pieces:
        occurrences.append((piece, seen[piece]))
        seen[piece] += 1
    return occurrences


def _without_mnemonics(text: str) -> tuple[str, int]:
    """Removes the mnemonic marks from a text; also returns their number."""
    mnemonics = [piece for piece in find(text) if piece.kind == "mnemonic"] if "&" in text else []
    return "".join(CutText.at(text, mnemonics).texts), len(mnemonics)
