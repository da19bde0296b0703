"""Reads `presets.toml`: what each task changes in the defaults, and presets of several sizes for each task."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

from regard.settings.option_fields import merge

Tables = dict[str, Any]

_FILE: Tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _resolved(tables: Tables) -> Tables:
    """Returns tables of settings with those that they inherit from merged in."""
    base: Tables = {}
    for name in tables.get("inherits", ()):
        base = merge(base, _resolved(_FILE["shared"][name]))
    return merge(base, {name: table for name, table in tables.items() if name != "inherits"})


TASKS = {task: _resolved(tables) for task, tables in _FILE["tasks"].items()}
PRESETS = {
    task: {name: _resolved(tables) for name, tables in presets.items()} for task, presets in _FILE["presets"].items()
}
FINE_TUNING: Tables = _FILE["fine_tuning"]
"""Settings for a model that starts from another one's weights."""

NAMES = {name for presets in PRESETS.values() for name in presets}
UNITS = {"translate": "pairs", "write": "characters", "fill": "characters", "classify": "labelled texts"}


def choose_preset(task: str, size: int, device: str) -> tuple[str, str]:
    """Returns the preset for a corpus of `size` pairs, characters or labelled texts, and the reason in words."""
    limits: dict[str, float] = _FILE["limits"][task]
    name, limit = next((preset, limit) for preset, limit in limits.items() if size < limit)
    reason = f"{size:,} {UNITS[task]}" + ("" if limit == math.inf else f" are fewer than {limit:,}")
    if name in ("base", "big") and device == "cpu":
        return "small", f"{reason}, for which {name} is recommended, but on a CPU that would take weeks"
    return name, reason
