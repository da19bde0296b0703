"""Translation directions, such as en-de, and their language codes.

A model with several directions reads a tag for the target language before the source (Johnson et al., 2017).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from regard.errors import InputError
from regard.settings import DataSettings

CHINESE = {"zh", "zho", "chi", "cmn", "yue"}
JAPANESE = {"ja", "jpn"}
UNSPACED = CHINESE | JAPANESE | {"th", "tha", "lo", "lao", "km", "khm", "my", "mya"}
"""Primary codes of languages written without spaces between words."""


@dataclass(frozen=True, slots=True)
class Direction:
    """A translation direction: a source language and a target language."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def directions_of(data: DataSettings) -> tuple[Direction, ...]:
    several = [Direction(*name.split("-")) for name in data.directions]
    return tuple(several) or (Direction(data.source, data.target),)


def languages_of(directions: Iterable[Direction]) -> list[str]:
    """Returns the languages in these directions without duplicates, in order of appearance."""
    return list(dict.fromkeys(name for each in directions for name in (each.source, each.target)))


def targets_of(data: DataSettings) -> tuple[str, ...]:
    """Returns the languages that have a tag: the target languages if the model has several directions, else none."""
    return tuple(dict.fromkeys(each.target for each in directions_of(data))) if data.directions else ()


@lru_cache(1000)
def normalize_code(code: str) -> str:
    """Normalizes the spelling of a language code: EN-us becomes en_US."""
    first, *rest = re.split("[-_]", code.strip())
    return "_".join([first.lower(), *(part.title() if len(part) == 4 else part.upper() for part in rest)])


def primary(code: str) -> str:
    """Returns a normalized language code without its script and region."""
    return normalize_code(code).split("_")[0].split("@")[0]


def language(name: str) -> str:
    """Returns a language name as it appears in directions, with underscores: pt_BR for pt-BR."""
    return name.replace("-", "_")


def format_directions(data: DataSettings, arrow: str = "→") -> str:
    """Formats the directions for display: en → de, de → en."""
    return ", ".join(f"{each.source} {arrow} {each.target}" for each in directions_of(data))


def choose_direction(
    data: DataSettings, source: str | None = None, target: str | None = None, *, zero_shot: bool = False
) -> Direction:
    """Returns the model's direction with this source and target; its source is empty if several directions match.

    Raises InputError for a target language that the model does not know and, unless `zero_shot` is true, for a
    direction that it was not trained on.
    """
    known = directions_of(data)
    source, target = (None if name is None else language(name) for name in (source, target))
    fitting = [d for d in known if source in (None, language(d.source)) and target in (None, language(d.target))]
    targets = list(dict.fromkeys(d.target for d in fitting))
    if len(targets) == 1:
        return fitting[0] if len(fitting) == 1 else Direction(source or "", targets[0])
    listed = ", ".join(map(str, known))
    if targets:
        raise InputError(
            f"this model translates into several languages: choose one with target (--to): {' or '.join(targets)}"
        )
    if not data.directions and (data.source, data.target) == (DataSettings.source, DataSettings.target):
        raise InputError("this model does not name its languages: leave out source and target (--from, --to)")
    if not data.directions:
        raise InputError(f"this model translates only from {known[0].source} to {known[0].target}")
    if target is None:
        raise InputError(f"this model was not trained to translate from {source}: it knows {listed}")
    if target not in targets_of(data):
        raise InputError(f"this model cannot translate into {target}: it knows {listed}")
    if not zero_shot:
        raise InputError(
            f"this model was not trained on {source}-{target}: it knows {listed}; "
            "to try it anyway, use zero_shot (--zero-shot)"
        )
    return Direction(source or "", target)
