"""A document in UTF-8 in which translations take the place of parts of its text."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import TranslationState, Unit
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location

Write = Callable[[str], str]


class Spliced:
    """Units, each with the part of the text that a translation replaces and with how it is spelled there."""

    def __init__(self, path: Path, text: str, source_language: str = "", target_language: str = "") -> None:
        self.path, self.text = path, text
        self.source_language, self.target_language = source_language, target_language
        self.notes: list[str] = []
        self.language: tuple[int, int, Write] | None = None  # where the language of the text stands, if it does
        self._units: list[Unit] = []
        self._parts: list[tuple[int, int, Write]] = []
        self._ends = [found.end() for found in re.finditer("\n", text)]

    @property
    def units(self) -> Sequence[Unit]:
        return self._units

    def place(self, at: int) -> Location:
        """The line of a character of the text."""
        return Location(str(self.path), bisect(self._ends, at) + 1)

    def fault(self, message: str, at: int) -> DataError:
        """What to raise where the text is not as it has to be."""
        return DataError(message, self.path, self.place(at).line)

    def add(
        self,
        source: str,
        start: int,
        end: int,
        write: Write = str,
        *,
        target: str = "",
        state: TranslationState = "empty",
        marks: tuple[str, ...] = (),
        context: str = "",
    ) -> None:
        """A unit whose translation stands, or will stand, at text[start:end]."""
        self._units.append(Unit(source, target, self.place(start), state, marks, context))
        self._parts.append((start, end, write))

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """The text with these translations in it."""
        edits = [(*self._parts[i][:2], self._parts[i][2](replace_surrogates(target))) for i, target in targets.items()]
        if targets and language and self.language:
            start, end, write = self.language
            edits.append((start, end, write(language)))
        pieces, at = [], 0
        for start, end, new in sorted(edits):
            pieces += [self.text[at:start], new]
            at = end
        return "".join([*pieces, self.text[at:]]).encode()


def replace_surrogates(text: str) -> str:
    """A text without what UTF-8 cannot spell."""
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def has_words(text: str, marks: Sequence[str] = ()) -> bool:
    """Whether there is anything to translate in a text beside its marks."""
    for mark in marks:
        text = text.replace(mark, " ", 1)
    return any(character.isalpha() for character in text) and not SURROGATE.search(text)


def one_line(text: str) -> str:
    """A text without line ends."""
    return re.sub(r"[\r\n]+", " ", text)


def wrap(words: Sequence[str], width: int, may_begin: Callable[[str], bool] = bool) -> list[str]:
    """Words in lines of so many characters, if no word is longer; some words may begin no line but the first."""
    lines: list[str] = []
    for word in words:
        if lines and (len(lines[-1]) + 1 + len(word) <= width or not may_begin(word)):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
