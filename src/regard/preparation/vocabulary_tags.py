"""Chooses the tags of a vocabulary: target languages of several directions, and slots for placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.errors import SettingsError
from regard.files.corpus_files import expand_paths
from regard.files.formats.format_by_suffix import suffix
from regard.preparation.chosen_settings import resolve
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import DataSettings, Settings
from regard.settings.option_fields import merge
from regard.tokens.directions import targets_of
from regard.tokens.slot_tokens import SLOTS

MESSAGE_FILES = (".po", ".pot", ".mo", ".xlf", ".xliff", ".tmx", ".json", ".arb")
"""Suffixes of files that mostly contain messages of programs, with placeholders in them."""


def with_tags(request: TrainingRequest) -> TrainingRequest:
    """Returns the request with a tag for each target language, and with slots; a model to start from has its own."""
    if request.start is not None:
        return request
    settings = resolve(request.given)
    slots = SLOTS if uses_slots(settings.data, request.files) else ()
    tags = dict.fromkeys((*targets_of(settings.data), *settings.tokenizer.tags, *slots))
    if tuple(tags) == settings.tokenizer.tags:
        return request
    return replace(request, given=merge(request.given, {"tokenizer": {"tags": list(tags)}}))


def uses_slots(data: DataSettings, files: Sequence[str]) -> bool:
    """Returns True if a model that is trained on these files has slots."""
    if data.protect == "auto":
        return any(suffix(path) in MESSAGE_FILES for path in expand_paths(files))
    return data.protect == "on"


def require_tags(settings: Settings, request: TrainingRequest) -> None:
    """Refuses tags and slots that the model to start from does not have, and one direction beside several."""
    tags = settings.tokenizer.tags
    missing = [name for name in targets_of(settings.data) if name not in tags]
    if missing:
        raise SettingsError(
            f"the model given with --from has no tag to translate into {' and '.join(missing)}: it has "
            f"{', '.join(tags) or 'no tags'}"
        )
    if settings.data.protect == "on" and not set(SLOTS) <= set(tags):
        raise SettingsError("the model given with --from has no slots: data.protect cannot be on")
    if settings.data.directions and {"source", "target"} & request.given.get("data", {}).keys():
        raise SettingsError(
            "data.source and data.target name one direction, but data.directions names "
            f"{','.join(settings.data.directions)}: give one or the other"
        )
