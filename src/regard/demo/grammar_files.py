"""Reads the files of the demonstration grammar, and names the file and the entry where one is wrong."""

from __future__ import annotations

import difflib
import inspect
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from regard.errors import DataError

GRAMMAR = Path(__file__).with_name("grammar")

KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "a list",
    Sequence: "a list",
}

Entry = TypeVar("Entry")


def load_table(path: Path, columns: str, parse: Callable[..., Entry]) -> dict[str, Entry]:
    """Parses each line of a table, by its first word; "|" separates columns, "#" starts a comment line."""
    entries: dict[str, Entry] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")]
        name = cells[0].partition("/")[0]
        if not line.strip() or line.startswith("#"):
            continue
        if len(cells) != len(columns.split("|")):
            raise DataError(f"{len(cells)} columns instead of {columns}", path, number)
        if name in entries:
            raise DataError(f"a second entry for {name!r}: remove one of the two", path, number)
        try:
            entries[name] = parse(*cells)
        except ValueError as error:
            raise DataError(str(error), path, number) from None
    return entries


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"not valid TOML: {error}", path) from None


def load_entries(path: Path, kind: str, parse: Callable[..., Entry]) -> tuple[Entry, ...]:
    """Parses each [[kind]] of a TOML file."""
    try:
        return parse_entries(kind, read_toml(path).get(kind, []), parse)
    except ValueError as error:
        raise DataError(str(error), path) from None


def parse_entries(kind: str, entries: Iterable[Mapping[str, Any]], parse: Callable[..., Entry]) -> tuple[Entry, ...]:
    """Calls a function or class with the keys of each entry as keyword arguments; an error names the entry."""
    parsed = []
    for number, arguments in enumerate(entries, 1):
        try:
            check_arguments(parse, arguments)
            parsed.append(parse(**arguments))
        except ValueError as error:
            raise ValueError(f"{kind} {number}: {error}") from None
    return tuple(parsed)


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that the parameters of a function or class do not name, or whose types differ."""
    hints = get_type_hints(vars(function)["__init__"] if isinstance(function, type) else function)
    parameters = {name: each for name, each in inspect.signature(function).parameters.items() if name != "self"}
    require_known(arguments, parameters, "key")
    for name, value in arguments.items():
        expected = get_origin(hints[name]) or hints[name]
        if not isinstance(value, (int, float) if expected is float else expected) or isinstance(value, str) != (
            expected is str
        ):
            raise ValueError(f"{name} must be {KINDS[expected]}, not {value!r}")
    missing = [name for name, each in parameters.items() if each.default is each.empty and name not in arguments]
    if missing:
        raise ValueError(f"add {' and '.join(missing)}")


def require_known(names: Collection[str], known: Collection[str], what: str) -> None:
    """Refuses a name that is not among the known ones, and suggests one that is spelt alike."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            raise ValueError(f"unknown {what} {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
