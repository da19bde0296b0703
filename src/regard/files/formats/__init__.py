"""A file per format; each reads its form of text into pairs, one at a time, and what can be filled in as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from regard.tokens.text_pairs import Location

TranslationState = Literal["empty", "draft", "done"]
"""Of a translation: there is none; there is one that somebody has to look at (fuzzy, needs review); it is finished."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A text of a document, and what stands there as its translation."""

    source: str
    target: str  # nothing where there is none, and in files of one language
    where: Location
    state: TranslationState = "empty"
    marks: tuple[str, ...] = ()  # inline elements such as <g id="1">, as they stand in the text; all else in it is text
    context: str = ""  # what tells equal sources apart


class Document(Protocol):
    """A file with texts to translate, which can be written again with their translations in it."""

    source_language: str  # nothing where the file does not tell
    target_language: str
    notes: list[str]  # what whoever translates it should know, such as another charset than before

    @property
    def units(self) -> Sequence[Unit]: ...

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """The file with these translations, by the numbers of their units, marked as made by a machine.

        All other bytes are those of the file; without any translation they all are. `language` is that of the
        translations, for files that tell it.
        """
        ...
