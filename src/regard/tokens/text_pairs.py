"""Pairs: a text, its translation and where they stand in a file."""

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
    """A sentence, its translation, and where they stand."""

    source: str
    target: str
    where: Location
    tags: tuple[str, ...] = ()  # what the model is told beside the source (`TokenizerSettings.tags`)
    direction: str = ""  # of a model that has several, such as en-de
    family: str = ""  # the same for all pairs of one line in several languages; they are held out together
