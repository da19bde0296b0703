"""A UTF-8 document in which translations replace parts of the text; all other bytes remain unchanged."""

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
"""A function that encodes a translation as its format requires, for example with escapes."""


class TextDocument:
    """A UTF-8 document with its units and, for each unit, the part of the text that the translation replaces."""

    def __init__(self, path: Path, text: str, source_language: str = "", target_language: str = "") -> None:
        self.path, self.text = path, text
        self.source_language, self.target_language = source_language, target_language
        self.notes: list[str] = []
        self.units: list[Unit] = []
        self.language: tuple[int, int, Write] | None = None  # the part of the text that declares its language
        self._parts: list[tuple[int, int, Write]] = []
        self._ends = [match.end() for match in re.finditer("\n", text)]

    def location(self, position: int) -> Location:
        """Returns the location of the line at a position of the text."""
        return Location(str(self.path), bisect(self._ends, position) + 1)

    def fault(self, message: str, position: int) -> DataError:
        """Returns an error for the line at a position of the text."""
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
        """Returns the document with the translations `targets`, keyed by unit index."""
        parts = [(self._parts[number], replace_surrogates(target)) for number, target in targets.items()]
        if targets and language and self.language:
            parts.append((self.language, language))
        return splice(self.text, sorted((start, end, write(new)) for (start, end, write), new in parts)).encode()


def splice(text: AnyStr, edits: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    """Replaces text[start:end] by `new` for each of the sorted edits (start, end, new)."""
    pieces: list[AnyStr] = []
    position = 0
    for start, end, new in edits:
        pieces += [text[position:start], new]
        position = end
    pieces.append(text[position:])
    return text[:0].join(pieces)


def replace_surrogates(text: str) -> str:
    """Replaces surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def has_words(text: str) -> bool:
    """Returns whether a text contains letters, and no surrogates, which could not be written back."""
    return any(map(str.isalpha, text)) and not SURROGATE.search(text)


def on_one_line(text: str) -> str:
    """Replaces line ends by spaces."""
    return re.sub(r"[\r\n]+", " ", text)


def wrap(words: Sequence[str], width: int, may_begin: Callable[[str], bool] = bool) -> list[str]:
    """Joins words to lines of at most `width` characters, unless a single word is longer.

    A line after the first begins only with a word for which `may_begin` is true.
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
