"""Combines the settings for training: defaults, then the task's, the preset's, the file's and the flags' settings.

Later ones override earlier ones. `presets.toml` contains the settings of each task, and its presets of several sizes.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.argument_checks import require, require_path
from regard.errors import SettingsError
from regard.settings import Settings
from regard.settings.option_fields import build, convert, merge, options
from regard.settings.recorded_settings import read_toml

Tables = dict[str, Any]

_FILE: Tables = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


def _resolved(tables: Tables) -> Tables:
    """Merges tables of settings with the shared tables that they inherit."""
    base: Tables = {}
    for name in tables.get("inherits", ()):
        base = merge(base, _resolved(_FILE["shared"][name]))
    return merge(base, {name: table for name, table in tables.items() if name != "inherits"})


TASKS = {task: _resolved(tables) for task, tables in _FILE["tasks"].items()}
PRESETS = {
    task: {name: _resolved(tables) for name, tables in presets.items()} for task, presets in _FILE["presets"].items()
}
FINE_TUNING: Tables = _FILE["fine_tuning"]
"""Settings for training that starts from the weights of another model."""

NAMES = {name for presets in PRESETS.values() for name in presets}
UNITS = {"translate": "pairs", "write": "characters", "fill": "characters", "classify": "labelled texts"}


def load(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None
) -> Settings:
    """Combines the defaults, the preset, the TOML file and dotted overrides, in increasing order of priority."""
    return resolve(gather(path, overrides), preset)


def gather(
    path: Path | str | None = None, overrides: Mapping[str, Any] | None = None, *, starting: bool = False
) -> dict[str, Any]:
    """Returns the user's settings as nested tables: the TOML file, overridden by dotted names.

    If training is `starting` from another model, the file's settings of shape and vocabulary are left out.
    """
    given = {} if path is None else read_toml(require_path(path, "settings_file"))
    for name in find_shape_settings(given) if starting else ():
        table, _, key = name.rpartition(".")
        del (given[table] if table else given)[key]
    return override(given, overrides)


def override(given: dict[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sets the values of dotted names in nested tables in place, and returns the tables."""
    require(overrides, (Mapping, type(None)), "overrides", 'a dict of settings, such as {"model.width": 256}')
    for dotted, value in (overrides or {}).items():
        require(dotted, str, "overrides", 'names of settings, such as "model.width"')
        *parents, leaf = dotted.split(".")
        node = given
        for name in parents:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise SettingsError(f"unknown setting {dotted}")
        node[leaf] = value
    return given


def find_shape_settings(given: Mapping[str, Any]) -> list[str]:
    """Lists those of the given settings that a model inherits from the model that it starts from."""
    known = {option.path for option in options(Settings)}
    tables = {name: table for name in ("model", "tokenizer") if isinstance(table := given.get(name), Mapping)}
    names = [f"{table}.{key}" for table, keys in tables.items() for key in keys if key not in FREE]
    preset = ["preset"] if given.get("preset", "auto") != "auto" else []
    return preset + [name for name in names if name in known]


def resolve(given: Mapping[str, Any], preset: str | None = None, start: Settings | None = None) -> Settings:
    """Completes the user's settings with those of the task and of a preset.

    `preset` is used if the user chooses none, or auto. With a model to `start` from, its shape and vocabulary replace
    those of the preset and cannot be changed.
    """
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
    """Returns the settings that a model for `task` inherits from the model that it starts from."""
    shape, data = asdict(start.model), asdict(start.data)
    if task == "classify" and start.task != "classify":
        shape |= {"next_sentence": False, "pooler": _pooler_for_labels(start)}
    if task != start.task:
        data = {}
    tables = {"model": shape, "tokenizer": asdict(start.tokenizer), "data": data}
    tables |= {"decoding": asdict(start.decoding), "embedding": asdict(start.embedding)}
    return tables


def require_same_shape(start: Settings, given: Mapping[str, Any]) -> None:
    """Raises SettingsError for a preset, and for settings that differ from the shape of the model to start from."""
    leaves = {option.path: option for option in options(Settings)}
    for name in find_shape_settings(given):
        if name == "preset":
            raise SettingsError(
                f"the preset {given['preset']} sets the model's shape, which --from takes from the other model: leave "
                "it out"
            )
        table, key = name.split(".")
        inherited = getattr(getattr(start, table), key)
        if convert(leaves[name], given[table][key]) != inherited:
            shown = str(inherited).lower() if isinstance(inherited, bool) else inherited
            raise SettingsError(f"{name} comes from the --from model ({shown}) and cannot be changed: leave it out")


def _pooler_for_labels(start: Settings) -> str:
    """Returns the pooler for a classifier: the one that the model was trained with, or else the mean state."""
    if start.task == "embed" and start.embedding.pooling == "first":
        return "none"
    return start.model.pooler if start.model.next_sentence else "mean"


FREE = ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout", "pooler")
"""Model settings that do not affect the shape of weights, so they may differ from the model to start from."""


def choose_preset(task: str, size: int, device: str) -> tuple[str, str]:
    """Returns the preset for a corpus of `size` pairs, characters or labelled texts, and a description of why."""
    limits: dict[str, float] = _FILE["limits"][task]
    name, limit = next((preset, limit) for preset, limit in limits.items() if size < limit)
    reason = f"{size:,} {UNITS[task]}" + ("" if limit == math.inf else f" are fewer than {limit:,}")
    if name in ("base", "big") and device == "cpu":
        return "small", f"{reason}, for which {name} is recommended, but on a CPU that would take weeks"
    return name, reason
