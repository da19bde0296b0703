"""What training does otherwise where a model has several directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from regard.errors import SettingsError
from regard.files.corpus_files import expand_paths
from regard.files.formats.format_by_suffix import suffix
from regard.preparation.task_preparation import Request
from regard.settings import DataSettings, Settings
from regard.settings.option_fields import merge
from regard.settings.resolution import resolve
from regard.tokens.directions import directions_of, targets_of
from regard.tokens.slot_tokens import SLOTS
from regard.tokens.text_pairs import Pair


def with_tags(request: Request) -> Request:
    """The request with a tag for each language to translate into, and with slots; a model to start from has its own."""
    if request.start is not None:
        return request
    settings = resolve(request.given)
    slots = SLOTS if protects(settings.data, request.files) else ()
    tags = dict.fromkeys((*targets_of(settings.data), *settings.tokenizer.tags, *slots))
    if tuple(tags) == settings.tokenizer.tags:
        return request
    return replace(request, given=merge(request.given, {"tokenizer": {"tags": list(tags)}}))


def protects(data: DataSettings, files: Sequence[str]) -> bool:
    """Whether a model that is trained on these files shall have slots."""
    if data.protect == "auto":
        return any(suffix(path) in PROGRAMS for path in expand_paths(files))
    return data.protect == "on"


PROGRAMS = (".po", ".pot", ".mo", ".xlf", ".xliff", ".tmx", ".json", ".arb")
"""How the names of files end that mostly hold what programs say, with placeholders in it."""


def require_tags(settings: Settings, request: Request) -> None:
    """Refuses what the model to start from has no tags or slots for, and one direction beside several."""
    missing = [name for name in targets_of(settings.data) if name not in settings.tokenizer.tags]
    if missing:
        raise SettingsError(
            f"the model given with --from was not made to translate into {' and '.join(missing)} by a tag: it has "
            f"{', '.join(settings.tokenizer.tags) or 'no tags'}"
        )
    if settings.data.protect == "on" and not set(SLOTS) <= set(settings.tokenizer.tags):
        raise SettingsError("the model given with --from has no slots: data.protect cannot be on")
    if settings.data.directions and {"source", "target"} & request.given.get("data", {}).keys():
        several = ",".join(settings.data.directions)
        raise SettingsError(
            f"data.source and data.target say one direction, data.directions {several}: give only these"
        )


def first_direction(data: DataSettings) -> dict[str, str]:
    """The languages of the first of several directions, for those who ask for one."""
    first = directions_of(data)[0]
    return {"source": first.source, "target": first.target} if data.directions else {}


def both_ways(pairs: Iterator[Pair], data: DataSettings) -> Iterator[Pair]:
    """The pairs, and those whose target is in a language that is translated from the other way round, too."""
    sources = {direction.source for direction in directions_of(data)}
    for pair in pairs:
        yield pair
        if pair.tags[0] in sources:
            yield replace(pair, source=pair.target, target=pair.source)


def record_of(pair: Pair) -> dict[str, str]:
    """A pair that is held out, as `Task.held_out` gives it back."""
    told = {"direction": pair.direction} if pair.direction else {}
    return {"source": pair.source, "target": pair.target, **told}
