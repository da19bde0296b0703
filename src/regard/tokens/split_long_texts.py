"""Splits texts into lines, and lines that are too long for a model into shorter pieces, without losing a word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from regard.errors import InputError
from regard.tokens.clean_text import tidy

BREAKS = (
    re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*"),  # between sentences
    re.compile(r"(?<=[,;:])\s+|(?<=[，；：、])\s*"),  # between clauses
    re.compile(r"\s+"),  # between words
)


def split_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yields each nonempty line, normalized, preceded by the line breaks before it."""
    gap = ""
    for piece in re.split(r"(\r?\n)", text):
        if piece in ("\n", "\r\n"):
            gap += piece
        elif line := tidy(piece):
            yield gap, line
            gap = ""
    if gap:
        yield gap, ""


def split_text(text: str, fits: Callable[[str], bool], level: int = 0) -> list[str]:
    """Splits a text into pieces that fit: between sentences if possible, else between clauses or words."""
    if fits(text):
        return [text]
    if level == len(BREAKS):
        raise InputError(
            f"a text is too long for this model and cannot be split: {text[:40]!r}... "
            "(add spaces or full stops, or train a model with a larger model.max_length)"
        )
    pieces: list[str] = []
    start = fitting = 0
    for end in [*(match.end() for match in BREAKS[level].finditer(text)), len(text)]:
        if fitting > start and not fits(text[start:end].strip()):
            pieces.append(text[start:fitting].strip())
            start = fitting
        if fits(text[start:end].strip()):
            fitting = end
        else:
            pieces += split_text(text[start:end].strip(), fits, level + 1)
            start = fitting = end
    rest = text[start:fitting].strip()
    return [*pieces, rest] if rest else pieces
