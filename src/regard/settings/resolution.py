"""Resolves settings from their sources: defaults, what the task needs, the preset, the file, the flags; later wins."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.argument_checks import require, require_path
from regard.errors import SettingsError
from regard.settings import Settings
from regard.settings.option_fields import build, convert, merge, options


def load(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None
) -> Settings:
    """Returns the settings from the defaults, the preset, the TOML file and dotted overrides; later wins."""
    return resolve(gather(path, overrides), preset)


def gather(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, *, starting: bool = False
) -> dict[str, Any]:
    """Returns the settings that the user gives, as nested tables: the TOML file with dotted overrides on top.

    If the model is `starting` from another one, the file's settings of shape and vocabulary are left out.
    """
    given = {} if path is None else read_toml(require_path(path, "settings_file"))
    for name in find_shape_settings(given) if starting else ():
        table, _, key = name.rpartition(".")
        del (given[table] if table else given)[key]
    return override(given, overrides)


def override(given: dict[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sets the values of dotted names in nested tables, in place, and returns the tables."""
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


def find_shape_settings(given: Mapping[str, Any]) -> list[str]:
    """Lists the given settings that a model inherits from the one that it starts from."""
    known = {option.path for option in options(Settings)}
    tables = {name: table for name in ("model", "tokenizer") if isinstance(table := given.get(name), Mapping)}
    names = [f"{table}.{key}" for table, keys in tables.items() for key in keys if key not in FREE]
    preset = ["preset"] if given.get("preset", "auto") != "auto" else []
    return preset + [name for name in names if name in known]


def resolve(given: Mapping[str, Any], preset: str | None = None, start: Settings | None = None) -> Settings:
    """Returns the user's settings on top of what the task needs and of a preset.

    `preset` is used if the user names none, or auto. With a model to `start` from, its shape and vocabulary replace
    the preset's and cannot be changed.
    """
    from regard.settings.presets import FINE_TUNING, NAMES, PRESETS, TASKS  # a file that a translation does not need

    task, named = given.get("task", start.task if start else "translate"), given.get("preset", "auto")
    chosen = preset if named == "auto" and preset is not None else named
    base = TASKS.get(task, {}) if isinstance(task, str) else {}
    if start is not None:
        require_same_shape(start, given)
        base = merge(merge(base, _tables_of_start(start, task)), FINE_TUNING)
    elif isinstance(task, str) and task in PRESETS and isinstance(chosen, str) and chosen != "auto":
        if chosen not in PRESETS[task] and chosen in NAMES:
            raise SettingsError(f"there is no preset {chosen} for {task}: use {', '.join(PRESETS[task])} or auto")
        base = merge(base, PRESETS[task].get(chosen, {}))
    return build(Settings, {**merge(base, given), "task": task, "preset": chosen})


def _tables_of_start(start: Settings, task: str) -> dict[str, Any]:
    """Returns the settings that a model for `task` inherits from the one that it starts from."""
    shape, data = asdict(start.model), asdict(start.data)
    if task == "classify" and start.task != "classify":
        shape |= {"next_sentence": False, "pooler": _pooler_for_labels(start)}
    if task != start.task:
        data = {}
    tables = {"model": shape, "tokenizer": asdict(start.tokenizer), "data": data}
    tables |= {"decoding": asdict(start.decoding), "embedding": asdict(start.embedding)}
    return tables


def require_same_shape(start: Settings, given: Mapping[str, Any]) -> None:
    """Refuses a preset, and any other shape or vocabulary than that of the model to start from."""
    leaves = {option.path: option for option in options(Settings)}
    for name in find_shape_settings(given):
        if name == "preset":
            raise SettingsError(
                f"a preset sets the model's shape, which --from takes from the other model: leave out the preset "
                f"{given['preset']}"
            )
        table, key = name.split(".")
        inherited = getattr(getattr(start, table), key)
        if convert(leaves[name], given[table][key]) != inherited:
            shown = str(inherited).lower() if isinstance(inherited, bool) else inherited
            raise SettingsError(
                f"{name} comes from the model given with --from ({shown}) and cannot be changed: leave it out"
            )


def _pooler_for_labels(start: Settings) -> str:
    """Returns the pooler that classifies texts: the one that the model was trained with, or else the mean state."""
    if start.task == "embed" and start.embedding.pooling == "first":
        return "none"
    return start.model.pooler if start.model.next_sentence else "mean"


FREE = ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout", "pooler")
"""Settings of a model that its weights do not depend on: they may differ from those of the model to start from."""


def load_recorded(path: Path) -> Settings:
    """Returns the settings that a model folder records, which are complete and need no preset."""
    return build(Settings, read_record(path))


REMOVED = ("training.r_drop", "training.risk")
"""Settings of earlier versions, whose model folders record them; 0 means that they were not used."""


def read_record(path: Path) -> dict[str, Any]:
    """Returns the tables that a model folder records, without the settings that this version no longer has."""
    tables = read_toml(path)
    for name in find_removed(tables):
        table, _, leaf = name.partition(".")
        del tables[table][leaf]
    return tables


def find_removed(tables: Mapping[str, Any], *, in_use: bool = False) -> list[str]:
    """Lists the removed settings in recorded tables; with `in_use`, only those that are not 0."""
    found = []
    for name in REMOVED:
        table, _, leaf = name.partition(".")
        values = tables.get(table)
        if isinstance(values, dict) and leaf in values and (values[leaf] or not in_use):
            found.append(name)
    return found


LARGEST = 1_000_000
"""Bytes of a settings file."""
MOST_DOTS = 64
"""Dots in a line outside of strings: tomllib takes quadratic time and memory for `a.a.a.a`, without an end."""


def read_toml(path: Path) -> dict[str, Any]:
    """Returns the tables of a TOML file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise SettingsError(f"{path}: is too large for a settings file, which has at most {LARGEST:,} bytes")
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        without_strings = text if re.search("\"{3}|'{3}", text) else _STRING.sub("", text)
        if any(line.partition("#")[0].count(".") > MOST_DOTS for line in without_strings.split("\n")):
            raise SettingsError(f"{path}: not a settings file: a line has more than {MOST_DOTS} dots")
        return tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise SettingsError(f"{path}: not a settings file: its values are nested too deeply") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
