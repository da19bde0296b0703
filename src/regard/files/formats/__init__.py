"""File formats, one per module: each reads pairs, or opens documents that are filled in with translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from regard.tokens.text_pairs import Location

TranslationState = Literal["empty", "draft", "done"]
"""There is no translation yet; there is one to review (fuzzy, needs-review); or it is finished."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A text of a document and its translation."""

    source: str
    target: str  # empty without a translation, and in files of one language
    where: Location
    state: TranslationState = "empty"
    marks: tuple[str, ...] = ()  # inline elements such as <g id="1">, as the text has them; everything else is text
    context: str = ""  # distinguishes units with equal sources


class Document(Protocol):
    """A file with texts to translate, which can be written again with their translations."""

    source_language: str  # empty if the file does not declare it
    target_language: str
    notes: list[str]  # for the user, for example that the charset has changed

    @property
    def units(self) -> Sequence[Unit]: ...

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the file with these translations, by the numbers of their units, marked as machine translations.

        All other bytes stay, and without translations all bytes do. Formats that declare the language of the
        translations declare `language`.
        """
        ...
