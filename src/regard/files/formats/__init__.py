"""File formats, one per module, which read pairs of texts or open documents to fill in translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from regard.tokens.text_pairs import Location

TranslationState = Literal["empty", "draft", "done"]
"""The state of a translation: missing, to be reviewed (fuzzy, needs-review) or finished."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A text of a document with its translation, if there is one."""

    source: str
    target: str  # empty if there is no translation, and in files with one language
    where: Location
    state: TranslationState = "empty"
    marks: tuple[str, ...] = ()  # inline elements as they occur in the text, such as <g id="1">
    context: str = ""  # distinguishes units with the same source


class Document(Protocol):
    """A file with texts to translate, which can be written back with translations."""

    source_language: str  # empty if the file does not declare it
    target_language: str
    notes: list[str]  # messages for the user, for example that the charset has changed

    @property
    def units(self) -> Sequence[Unit]: ...

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the file with the translations `targets`, keyed by unit index, marked as machine translations.

        All other bytes remain unchanged. Formats that declare the language of the translations declare `language`.
        """
        ...
