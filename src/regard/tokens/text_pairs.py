"""Defines sentence pairs and their locations in files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A file and a line number, counted from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation, and where they come from."""

    source: str
    target: str
    where: Location
    tags: tuple[str, ...] = ()  # tags to put before the source (see `TokenizerSettings.tags`)
    direction: str = ""  # for example en-de, if the model has several directions
    family: str = ""  # shared by all pairs of one multilingual line, which are held out together
