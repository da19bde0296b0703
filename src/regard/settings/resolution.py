"""From what a user says to settings.

Later wins: defaults, then what the task needs, then the preset, then the file, then the flags. `settings.py` declares
them, `presets.py` has the presets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.argument_checks import require, require_path
from regard.errors import SettingsError
from regard.settings import Settings
from regard.settings.option_fields import build, convert, merge, options
from regard.settings.presets import FINE_TUNING, NAMES, PRESETS, TASKS


def load(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None
) -> Settings:
    """Settings from the defaults, the preset, the TOML file and dotted overrides: later wins."""
    return resolve(gather(path, overrides), preset)


def gather(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, *, starting: bool = False
) -> dict[str, Any]:
    """Returns what the user says, as nested tables: the TOML file, and dotted overrides on top.

    For a model that is `starting` from another one, leaves out what the file says of its shape and its vocabulary.
    """
    given = {} if path is None else read_toml(require_path(path, "settings_file"))
    for name in shape_in(given) if starting else ():
        table, _, key = name.rpartition(".")
        del (given[table] if table else given)[key]
    return override(given, overrides)


def override(given: dict[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Puts values of dotted names into nested tables, in place; returns the tables."""
    require(overrides, (Mapping, type(None)), "overrides", 'settings by their names, such as {"model.width": 256}')
    for dotted, value in (overrides or {}).items():
        require(dotted, str, "overrides", 'settings by their names, such as {"model.width": 256}')
        *parents, leaf = dotted.split(".")
        node = given
        for name in parents:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise SettingsError(f"unknown setting {dotted}")
        node[leaf] = value
    return given


def shape_in(given: Mapping[str, Any]) -> list[str]:
    """Returns the names of the settings among these that a model takes over from the one that it starts from."""
    known = {option.path for option in options(Settings)}
    tables = {name: table for name in ("model", "tokenizer") if isinstance(table := given.get(name), Mapping)}
    names = [f"{table}.{key}" for table, keys in tables.items() for key in keys if key not in FREE]
    preset = ["preset"] if given.get("preset", "auto") != "auto" else []
    return preset + [name for name in names if name in known]


def resolve(given: Mapping[str, Any], preset: str | None = None, start: Settings | None = None) -> Settings:
    """What the user says on top of what the task needs and of a preset.

    The preset is the one that the user names or, where they say auto or nothing, `preset`. With a model to
    `start` from, its shape and its vocabulary take the place of the preset's, and cannot be changed.
    """
    task, named = given.get("task", start.task if start else "translate"), given.get("preset", "auto")
    chosen = preset if named == "auto" and preset is not None else named
    under = TASKS.get(task, {}) if isinstance(task, str) else {}
    if start is None:
        if isinstance(task, str) and task in PRESETS and isinstance(chosen, str) and chosen != "auto":
            if chosen not in PRESETS[task] and chosen in NAMES:
                raise SettingsError(f"there is no preset {chosen} for {task}: use {', '.join(PRESETS[task])} or auto")
            under = merge(under, PRESETS[task].get(chosen, {}))
    else:
        under, given = continued(start, task, under, given)
    return build(Settings, {**merge(under, given), "task": task, "preset": chosen})


def continued(
    start: Settings, task: str, under: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings under the user's, and the user's, for a model that starts from another one's weights."""
    require_same_shape(start, given)
    shape, data = asdict(start.model), asdict(start.data)
    if task == "classify" and start.task != "classify":
        shape |= {"next_sentence": False, "pooler": _judging(start)}
    if task != start.task:
        data = {}
    tables = {"model": shape, "tokenizer": asdict(start.tokenizer), "data": data}
    tables |= {"decoding": asdict(start.decoding), "embedding": asdict(start.embedding)}
    return merge(merge(under, tables), FINE_TUNING), dict(given)


def require_same_shape(start: Settings, given: Mapping[str, Any]) -> None:
    """Refuses a preset, and another shape or vocabulary than that of the model to start from."""
    leaves = {option.path: option for option in options(Settings)}
    for name in shape_in(given):
        if name == "preset":
            raise SettingsError(
                f"a preset is a shape of model, and with --from the shape is that of the other model: leave out the "
                f"preset {given['preset']}"
            )
        table, key = name.split(".")
        there = getattr(getattr(start, table), key)
        if convert(leaves[name], given[table][key]) != there:
            shown = str(there).lower() if isinstance(there, bool) else there
            raise SettingsError(
                f"{name} is that of the model given with --from ({shown}), and cannot be changed: leave it out"
            )


def _judging(start: Settings) -> str:
    """What whole texts are judged on: where a model has learnt to say all of them, else the mean of all states."""
    if start.task == "embed" and start.embedding.pooling == "first":
        return "none"
    return start.model.pooler if start.model.next_sentence else "mean"


FREE = ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout", "pooler")
"""Settings of a model that the weights it starts from do not depend on."""


def recorded(path: Path) -> Settings:
    """Returns the settings that a model folder records: complete, so no preset is laid under them."""
    return build(Settings, read_record(path))


REMOVED = ("training.r_drop", "training.risk")
"""Settings of earlier versions, which their model folders record; 0 meant that they were not used."""


def read_record(path: Path) -> dict[str, Any]:
    """Returns the tables that a model folder records, without the settings that this version no longer has."""
    tables = read_toml(path)
    for name in removed(tables):
        table, _, leaf = name.partition(".")
        del tables[table][leaf]
    return tables


def removed(tables: Mapping[str, Any], *, in_use: bool = False) -> list[str]:
    """Lists the removed settings that recorded tables have; with `in_use`, those that were not 0."""
    found = []
    for name in REMOVED:
        table, _, leaf = name.partition(".")
        values = tables.get(table)
        if isinstance(values, dict) and leaf in values and (values[leaf] or not in_use):
            found.append(name)
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    return tables
