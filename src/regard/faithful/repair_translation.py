"""Puts a translation right: the protected pieces of its source and no others, in an order that programs take."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regard.tokens.protected_pieces import ProtectedPiece, arguments, find
from regard.tokens.slot_tokens import CutText

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
SPECIAL = {"printf": "%", "brace": "{}", "icu": "{}", "tag": "<>", "entity": "&"}
"""Characters that mean something in a text with pieces of a kind, even alone."""

OPENS, CLOSES = re.compile(r"<(\w[\w:.-]*)"), re.compile(r"</(\w[\w:.-]*)\s*>")
ENDING = re.compile(r"(?:\.\.\.|…|[:：])\Z")


@dataclass(frozen=True)
class SourceLine:
    """A line to translate, without white space around it, and what its translation has to hold."""

    text: str
    marks: tuple[str, ...] = ()
    numbers: bool = False
    pieces: tuple[ProtectedPiece, ...] = field(init=False)
    wanted: Counter[str] = field(init=False)
    cut: CutText = field(init=False)  # as a translator gets it: without the marks of mnemonics, which are put in later
    forbidden: str = field(init=False)  # characters that may stand in no translation outside of pieces

    def __post_init__(self) -> None:
        pieces = self.find(self.text)
        mnemonics = [piece for piece in pieces if piece.kind == "mnemonic"]
        told = "".join(CutText.at(self.text, mnemonics).texts)
        cut = CutText.at(told, [piece for piece in self.find(told) if piece.kind != "mnemonic"])
        outside = "".join(CutText.at(self.text, pieces).texts)
        special = {character for piece in pieces for character in SPECIAL.get(piece.kind, "")}
        values = {
            "pieces": tuple(pieces),
            "wanted": Counter(piece.text for piece in pieces),
            "cut": replace(cut, texts=tuple(unicodedata.normalize("NFC", t).replace("\t", " ") for t in cut.texts)),
            "forbidden": "".join(sorted(special - set(outside))),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def find(self, text: str) -> list[ProtectedPiece]:
        """The pieces of a text, as the line counts them."""
        return find(text, self.marks, numbers=self.numbers)

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        return any(character.isalpha() for text in self.cut.texts for character in text)

    def holds(self, made: str) -> bool:
        """Whether a translation has exactly the pieces of the line, in an order that programs take."""
        found = self.find(made)
        if Counter(piece.text for piece in found) != self.wanted:
            return False
        in_turn = _alike(_taken(found), _taken(self.pieces))
        return in_turn and (_nested(found) or _alike(_tags(found), _tags(self.pieces)))

    def missing(self, made: str) -> list[ProtectedPiece]:
        """The pieces of the line that a translation has not, or not often enough; of equal ones, the last."""
        there = Counter(piece.text for piece in self.find(made))
        found = []
        for piece in self.pieces:
            if there[piece.text]:
                there[piece.text] -= 1
            else:
                found.append(piece)
        return found


def repair(made: str, line: SourceLine) -> str:
    """A translation as right as it can be made: without what the line has not, in order, ending like the line."""
    for _ in range(3):  # what stood around a piece can be one when that is gone
        before, made = made, without_others(made, line)
        if made == before:
            break
    for piece in line.missing(made):
        if piece.kind == "mnemonic":
            made = with_mnemonic(made, line.text[piece.end], line)
    return with_ending(in_order(made, line), line)


def without_others(made: str, line: SourceLine) -> str:
    """A translation in one line, without pieces that the line has not, or not so often."""
    left, cut = Counter(line.wanted), CutText.at(made, line.find(made))
    removed = str.maketrans("", "", line.forbidden)
    found = ""
    for piece, text in zip(["", *cut.pieces], cut.texts, strict=True):
        text = UNPRINTABLE.sub("", re.sub(r"\s*[\r\n]\s*", " ", text)).translate(removed)
        if left[piece] > 0:
            left[piece] -= 1
            found += piece
        elif found[-1:] in ("", " "):
            text = text.lstrip(" ")
        found += text
    return found.strip()


def with_mnemonic(made: str, letter: str, line: SourceLine) -> str:
    """A translation with a mnemonic: at the same letter if there is one, best at the start of a word, or at the end."""
    cut, places, start = CutText.at(made, line.find(made)), [], 0
    for text, piece in zip(cut.texts, [*cut.pieces, ""], strict=True):
        places += [start + match.start() for match in re.finditer(r"[^\W_]", text) if match[0] < "\u2e80"]
        start += len(text) + len(piece)

    def rank(place: int) -> tuple[bool, bool, int]:
        return made[place].casefold() != letter.casefold(), made[:place][-1:].isalnum(), place

    wanted = Counter(piece.text for piece in line.find(made)) + Counter("&")
    for place in sorted(places, key=rank)[:8]:
        marked = f"{made[:place]}&{made[place:]}"
        if Counter(piece.text for piece in line.find(marked)) == wanted:
            return marked
    return f"{made}(&{letter.upper()})"  # as is usual in Chinese and Japanese


def in_order(made: str, line: SourceLine) -> str:
    """A translation whose pieces are changed round where no program could use them as they stand."""
    for chosen in (_taken, _tags):
        found, asked = chosen(line.find(made)), chosen(line.pieces)
        if len(found) == len(asked) and (chosen is _taken or not _nested(found)):
            cut = CutText.at(made, found)
            made = replace(cut, pieces=tuple(piece.text for piece in asked)).text
    return made


def with_ending(made: str, line: SourceLine) -> str:
    """A translation that ends in a colon or an ellipsis if the line does."""
    ending = ENDING.search(line.text)
    if ending is None or ENDING.search(made) or not made or (line.pieces and line.pieces[-1].end > ending.start()):
        return made
    ended = made.rstrip(" .…:") + ending[0]
    return ended if line.holds(ended) else made


def _taken(pieces: Sequence[ProtectedPiece]) -> list[ProtectedPiece]:
    """The pieces that take their arguments one after the other."""
    return [piece for piece in pieces if arguments(piece.text)]


def _tags(pieces: Sequence[ProtectedPiece]) -> list[ProtectedPiece]:
    """The pieces that open or close an element."""
    return [piece for piece in pieces if _role(piece.text)]


def _alike(these: Sequence[ProtectedPiece], those: Sequence[ProtectedPiece]) -> bool:
    return [piece.text for piece in these] == [piece.text for piece in those]


def _nested(pieces: Sequence[ProtectedPiece]) -> bool:
    """Whether what is opened is closed, the last first."""
    still_open: list[str] = []
    for piece in pieces:
        role = _role(piece.text)
        if role.startswith("/"):
            if not still_open or still_open.pop() != role[1:]:
                return False
        elif role:
            still_open.append(role)
    return not still_open


def _role(piece: str) -> str:
    """The name of the element that a tag opens, after a / if it closes it; nothing for what stands alone."""
    if closes := CLOSES.fullmatch(piece):
        return "/" + closes[1]
    opens = OPENS.match(piece)
    if opens is None or piece.endswith("/>"):
        return ""
    name = opens[1]
    whole = piece.endswith(f"</{name}>")
    if name in ("bpt", "ept") and whole:  # TMX and XLIFF 1.2: a pair of elements stands for a tag and its end
        number = re.search(r"""\s(?:i|rid|id)=["']([^"']*)""", piece)
        return ("/" if name == "ept" else "") + "pt" + (number[1] if number else "")
    return "" if whole or name.lower() in VOID else name


VOID = {"br", "hr", "img", "input", "wbr", "area", "base", "col", "embed", "link", "meta", "source", "track", "x"}
"""Elements that have no end."""
