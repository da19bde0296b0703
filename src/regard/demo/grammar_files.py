"""Reads the files of the demo grammar; error messages name the file and the entry."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from regard.errors import DataError

GRAMMAR = Path(__file__).with_name("grammar")

Schema = TypeVar("Schema")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class for the entries of a TOML file; unknown keys and values of other types are errors."""


def load_table(path: Path, columns: str, parse: Callable[..., Schema]) -> dict[str, Schema]:
    """Parses the lines of a table, keyed by their first word; "|" separates columns, "#" begins a comment line."""
    entries: dict[str, Schema] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        name = cells[0].partition("/")[0]
        if len(cells) != len(columns.split("|")):
            raise DataError(f"{len(cells)} columns instead of {columns}", path, number)
        if name in entries:
            raise DataError(f"duplicate entry for {name!r}: remove one of the two", path, number)
        try:
            entries[name] = parse(*cells)
        except ValueError as error:
            raise DataError(str(error), path, number) from None
    return entries


def load_toml(path: Path, schema: type[Schema]) -> Schema:
    """Reads a TOML file as an instance of a schema; types of the grammar, such as Nouns, parse their own text."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=schema, dec_hook=parse_own_type)
    except msgspec.MsgspecError as error:
        raise DataError(str(error), path) from None


def load_entries(path: Path, kind: str, schema: type[Schema]) -> list[Schema]:
    """Reads all [[kind]] tables of a TOML file."""
    entries = []
    for number, entry in enumerate(load_toml(path, dict[str, Any]).get(kind, []), 1):
        try:
            entries.append(msgspec.convert(entry, schema, dec_hook=parse_own_type))
        except msgspec.ValidationError as error:
            raise DataError(f"{kind} {number}: {error}", path) from None
    return entries


def parse_own_type(kind: Any, value: Any) -> Any:
    """Parses a value for a type of the grammar."""
    return kind.parse(value)


def one_of(names: Iterable[str]) -> msgspec.Meta:
    """Returns a msgspec constraint that allows only these names."""
    return msgspec.Meta(pattern=f"^(?:{'|'.join(names)})$")


def require_known(name: Any, known: Collection[str], what: str) -> None:
    """Raises an error with a suggestion if a name is not among the known ones."""
    if name not in known:
        close = difflib.get_close_matches(str(name), known, 1)
        raise ValueError(f"unknown {what} {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
