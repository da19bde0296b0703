"""Reads settings from TOML files, including the `model.toml` of a model folder."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import SettingsError
from regard.settings import Settings
from regard.settings.option_fields import build


def load_recorded(path: Path) -> Settings:
    """Returns the settings of a `model.toml`, which are complete and need no preset."""
    return build(Settings, read_record(path))


REMOVED = ("training.r_drop", "training.risk")
"""Settings of earlier versions that model folders may still contain; 0 means that they were off."""


def read_record(path: Path) -> dict[str, Any]:
    """Returns the tables of a `model.toml` without settings that have since been removed from Regard."""
    tables = read_toml(path)
    for name in find_removed(tables):
        table, _, leaf = name.partition(".")
        del tables[table][leaf]
    return tables


def find_removed(tables: Mapping[str, Any], *, in_use: bool = False) -> list[str]:
    """Lists the settings in these tables that have been removed from Regard; with `in_use`, only those not set to 0."""
    found = []
    for name in REMOVED:
        table, _, leaf = name.partition(".")
        values = tables.get(table)
        if isinstance(values, dict) and leaf in values and (values[leaf] or not in_use):
            found.append(name)
    return found


LARGEST = 1_000_000
"""Maximum size of a settings file in bytes."""
MOST_DOTS = 64
"""Maximum number of dots per line outside of strings: tomllib takes quadratic time and memory for `a.a.a.a`."""


def read_toml(path: Path) -> dict[str, Any]:
    """Returns the tables of a TOML file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise SettingsError(f"{path}: too large: a settings file may have at most {LARGEST:,} bytes")
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
