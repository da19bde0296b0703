"""Repairs translations, so that they contain exactly the protected pieces of their source in a valid order."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regard.tokens.placeholder_slots import CutText
from regard.tokens.protected_pieces import ProtectedPiece, arguments, find

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
SPECIAL = {"printf": "%", "brace": "{}", "icu": "{}", "tag": "<>", "entity": "&"}
"""Characters with a special meaning in texts that contain pieces of a kind."""

OPENS, CLOSES = re.compile(r"<(\w[\w:.-]*)"), re.compile(r"</(\w[\w:.-]*)\s*>")
ENDING = re.compile(r"(?:\.\.\.|…|[:：])\Z")


@dataclass(frozen=True)
class SourceLine:
    """A line to translate, without surrounding white space, and the pieces that its translation must contain."""

    text: str
    marks: tuple[str, ...] = ()
    numbers: bool = False
    pieces: tuple[ProtectedPiece, ...] = field(init=False)
    wanted: Counter[str] = field(init=False)
    cut: CutText = field(init=False)  # input of the translator, without the & of mnemonics
    forbidden: str = field(init=False)  # characters that its translation may contain only within pieces

    def __post_init__(self) -> None:
        pieces = self.find(self.text)
        mnemonics = [piece for piece in pieces if piece.kind == "mnemonic"]
        plain = "".join(CutText.at(self.text, mnemonics).texts)
        cut = CutText.at(plain, [piece for piece in self.find(plain) if piece.kind != "mnemonic"])
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
        """Finds the protected pieces of a text in the same way as in this line."""
        return find(text, self.marks, numbers=self.numbers)

    @property
    def has_words(self) -> bool:
        """True if the line contains letters outside its pieces."""
        return any(character.isalpha() for text in self.cut.texts for character in text)

    def holds(self, made: str) -> bool:
        """Reports whether a translation has exactly the pieces of the line in a valid order."""
        pieces = self.find(made)
        if Counter(piece.text for piece in pieces) != self.wanted:
            return False
        in_turn = _alike(_positional(pieces), _positional(self.pieces))
        return in_turn and (_is_nested(pieces) or _alike(_tags(pieces), _tags(self.pieces)))

    def missing(self, made: str) -> list[ProtectedPiece]:
        """Returns the pieces of the line that a translation lacks; among equal pieces, the last ones."""
        present = Counter(piece.text for piece in self.find(made))
        present.subtract(piece.text for piece in self.pieces)
        lacking = []
        for piece in reversed(self.pieces):
            if present[piece.text] < 0:
                present[piece.text] += 1
                lacking.append(piece)
        return lacking[::-1]


def repair(made: str, line: SourceLine) -> str:
    """Repairs a translation as far as possible, so that its pieces, their order and its ending match the line."""
    for _ in range(3):  # removing a piece can turn the text around it into another piece
        before, made = made, without_others(made, line)
        if made == before:
            break
    for piece in line.missing(made):
        if piece.kind == "mnemonic":
            made = with_mnemonic(made, line.text[piece.end], line)
    return with_ending(in_order(made, line), line)


def without_others(made: str, line: SourceLine) -> str:
    """Joins the lines of a translation, and removes pieces that the line does not have, or has less often."""
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
    """Inserts a mnemonic before the same letter, preferably at the start of a word, or appends it at the end."""
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
    """Puts positional placeholders, and tags that are not nested, into the order of the line."""
    for choose in (_positional, _tags):
        pieces, ordered = choose(line.find(made)), choose(line.pieces)
        if len(pieces) == len(ordered) and (choose is _positional or not _is_nested(pieces)):
            made = replace(CutText.at(made, pieces), pieces=tuple(piece.text for piece in ordered)).text
    return made


def with_ending(made: str, line: SourceLine) -> str:
    """Ends a translation with a colon or an ellipsis if the line does."""
    ending = ENDING.search(line.text)
    if ending is None or ENDING.search(made) or not made or (line.pieces and line.pieces[-1].end > ending.start()):
        return made
    ended = made.rstrip(" .…:") + ending[0]
    return ended if line.holds(ended) else made


def _positional(pieces: Sequence[ProtectedPiece]) -> list[ProtectedPiece]:
    """Returns the pieces that are replaced by arguments in their order."""
    return [piece for piece in pieces if arguments(piece.text)]


def _tags(pieces: Sequence[ProtectedPiece]) -> list[ProtectedPiece]:
    """Returns the pieces that are opening or closing tags."""
    return [piece for piece in pieces if _role(piece.text)]


def _alike(these: Sequence[ProtectedPiece], those: Sequence[ProtectedPiece]) -> bool:
    return [piece.text for piece in these] == [piece.text for piece in those]


def _is_nested(pieces: Sequence[ProtectedPiece]) -> bool:
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
    """Returns "b" for <b>, "/b" for </b>, and an empty text for a tag that neither opens nor closes an element."""
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
"""Elements without a closing tag."""
