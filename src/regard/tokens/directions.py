"""Directions: from which language a model translates into which.

A model of several directions reads the language to translate into as a tag before the source (Johnson et al., 2017).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regard.errors import InputError
from regard.settings import DataSettings


@dataclass(frozen=True, slots=True)
class Direction:
    """From one language into another."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def directions_of(data: DataSettings) -> tuple[Direction, ...]:
    """What a model was trained on: the directions that it names, or else the one from its source to its target."""
    named = [Direction(*name.split("-")) for name in data.directions]
    return tuple(named) or (Direction(data.source, data.target),)


def languages_of(directions: Iterable[Direction]) -> list[str]:
    """Every language once, in the order in which they come."""
    return list(dict.fromkeys(name for each in directions for name in (each.source, each.target)))


def targets_of(data: DataSettings) -> tuple[str, ...]:
    """The languages that are told by a tag: those that a model of several directions translates into."""
    return tuple(dict.fromkeys(each.target for each in directions_of(data))) if data.directions else ()


def language(name: str) -> str:
    """A language as directions name it: pt-BR is pt_BR."""
    return name.replace("-", "_")


def format_directions(data: DataSettings, arrow: str = "→") -> str:
    """The directions for people: en → de, de → en."""
    return ", ".join(f"{each.source} {arrow} {each.target}" for each in directions_of(data))


def choose_direction(
    data: DataSettings, source: str | None = None, target: str | None = None, *, zero_shot: bool = False
) -> Direction:
    """The direction that is meant by what is said of it; an empty source where it is not said and several are known.

    One that was not trained on is refused unless `zero_shot`, and always if no tag tells its target.
    """
    known = directions_of(data)
    source, target = (None if name is None else language(name) for name in (source, target))
    fitting = [d for d in known if source in (None, language(d.source)) and target in (None, language(d.target))]
    targets = list(dict.fromkeys(d.target for d in fitting))
    if len(targets) == 1:
        return fitting[0] if len(fitting) == 1 else Direction(source or "", targets[0])
    listed = ", ".join(map(str, known))
    if targets:
        raise InputError(f"which language to translate into? Name it as target (--to): {' or '.join(targets)}")
    if not data.directions and (data.source, data.target) == (DataSettings.source, DataSettings.target):
        raise InputError("this model does not say what its languages are: leave source and target (--from, --to) out")
    if not data.directions:
        raise InputError(f"this model translates from {known[0].source} to {known[0].target} and nothing else")
    if target is None:
        raise InputError(f"this model was not trained to translate from {source}: it knows {listed}")
    if target not in targets_of(data):
        raise InputError(f"this model cannot translate into {target}: it knows {listed}")
    if not zero_shot:
        raise InputError(
            f"this model was not trained on {source}-{target}: it knows {listed}; "
            "zero_shot (--zero-shot) tries it all the same"
        )
    return Direction(source or "", target)
