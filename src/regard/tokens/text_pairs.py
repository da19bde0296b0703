"""Pairs of a text and its translation, with their place in a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file, counted from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation, and their place in a file."""

    source: str
    target: str
    where: Location
    tags: tuple[str, ...] = ()  # put before the source (`TokenizerSettings.tags`)
    direction: str = ""  # such as en-de, if the model has several
    family: str = ""  # the same for all pairs of one line in several languages; they are held out together
