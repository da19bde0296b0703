"""A document in UTF-8 in which translations replace parts of the text, and every other byte stays."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import AnyStr

from regard.errors import DataError
from regard.files.formats import TranslationState, Unit
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location

Write = Callable[[str], str]
"""Spells a translation as its format requires, for example with escapes."""


class TextDocument:
    """Units of translation, each with the part of the text that its translation replaces."""

    def __init__(self, path: Path, text: str, source_language: str = "", target_language: str = "") -> None:
        self.path, self.text = path, text
        self.source_language, self.target_language = source_language, target_language
        self.notes: list[str] = []
        self.units: list[Unit] = []
        self.language: tuple[int, int, Write] | None = None  # the part of the text that names its language
        self._parts: list[tuple[int, int, Write]] = []
        self._ends = [match.end() for match in re.finditer("\n", text)]

    def location(self, position: int) -> Location:
        """Returns the line of a character of the text."""
        return Location(str(self.path), bisect(self._ends, position) + 1)

    def fault(self, message: str, position: int) -> DataError:
        """Returns an error that names the line of a character."""
        return DataError(message, self.path, self.location(position).line)

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
        """Adds a unit whose translation replaces text[start:end]."""
        self.units.append(Unit(source, target, self.location(start), state, marks, context))
        self._parts.append((start, end, write))

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the document with these translations, by the numbers of their units."""
        parts = [(self._parts[number], replace_surrogates(target)) for number, target in targets.items()]
        if targets and language and self.language:
            parts.append((self.language, language))
        return splice(self.text, sorted((start, end, write(new)) for (start, end, write), new in parts)).encode()


def splice(text: AnyStr, edits: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    """Returns a text with text[start:end] replaced for each (start, end, new), which are sorted."""
    pieces: list[AnyStr] = []
    position = 0
    for start, end, new in edits:
        pieces += [text[position:start], new]
        position = end
    pieces.append(text[position:])
    return text[:0].join(pieces)


def replace_surrogates(text: str) -> str:
    """Returns a text with replacement characters for surrogates, which UTF-8 cannot encode."""
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def has_words(text: str) -> bool:
    """Returns whether a text has a letter, and no surrogate that could not be written back."""
    return any(map(str.isalpha, text)) and not SURROGATE.search(text)


def on_one_line(text: str) -> str:
    """Returns a text with spaces for its line ends."""
    return re.sub(r"[\r\n]+", " ", text)


def wrap(words: Sequence[str], width: int, may_begin: Callable[[str], bool] = bool) -> list[str]:
    """Joins words to lines of at most `width` characters if no word is longer.

    Only words for which `may_begin` is true begin a line after the first.
    """
    lines: list[list[str]] = []
    length = 0
    for word in words:
        if lines and (length + 1 + len(word) <= width or not may_begin(word)):
            lines[-1].append(word)
            length += 1 + len(word)
        else:
            lines.append([word])
            length = len(word)
    return [" ".join(line) for line in lines]
