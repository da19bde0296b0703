"""Checks the types of arguments in the Python API, such as a list passed as a text or None passed as a path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast

from regard.errors import InputError

T = TypeVar("T")


def kind_of(value: object) -> str:
    """Returns the type of a value with its article, such as "a list" or "an int", for messages."""
    if value is None:
        return "None"
    name = type(value).__name__
    return name if name == "bytes" else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def require(value: object, types: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raises InputError unless `value` has one of these types; `name` and `expected` complete the message."""
    if not isinstance(value, types) or (types is int and isinstance(value, bool)):
        raise InputError(f"{name} takes {expected}, not {kind_of(value)}")


def require_text(value: object, name: str, several: str = "") -> None:
    """Raises InputError unless `value` is a str; `several` is the call to suggest for several texts."""
    hint = f": for several texts, call {several}" if several and isinstance(value, Iterable) else ""
    if not isinstance(value, str):
        raise InputError(f"{name} takes one text (a str), not {kind_of(value)}{hint}")


def require_texts(
    values: Iterable[T], name: str, one: str = "put it in a list", types: tuple[type, ...] = (str,)
) -> Iterator[T]:
    """Yields the items of an iterable; raises InputError for a single text, and for items that are not texts.

    `one` is the advice to give for a single text.
    """
    if isinstance(values, str):
        raise InputError(f"{name} takes several texts, not a str: for one text, {one}")
    if not isinstance(values, Iterable) or isinstance(values, bytes | bytearray | Mapping):
        raise InputError(f"{name} takes several texts, such as a list of str, not {kind_of(values)}")
    return _require_each(values, name, types)


def _require_each(values: Iterable[T], name: str, types: tuple[type, ...]) -> Iterator[T]:
    for number, value in enumerate(values, 1):
        if not isinstance(value, types):
            raise InputError(f"text {number}: {name} takes texts (str), not {kind_of(value)}")
        yield value


def require_path(value: object, name: str) -> Path:
    """Returns `value` as a Path; raises InputError unless it is a Path or a nonempty str."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} takes the path of a file or a folder (a str or a Path), not {kind_of(value)}")
    if value == "":
        raise InputError(f"{name} takes the path of a file or a folder, not an empty string")
    return value if isinstance(value, Path) else Path(value)


def require_paths(values: Path | str | Iterable[Path | str], name: str) -> list[Path | str]:
    """Returns the paths of an argument that takes one file or several; raises InputError for anything else."""
    if isinstance(values, str | os.PathLike):
        values = [cast(Path, values)]
    if not isinstance(values, Iterable) or isinstance(values, bytes | bytearray | Mapping):
        raise InputError(f"{name} takes files (each a str or a Path), not {kind_of(values)}")
    paths = list(values)
    for path in paths:
        require_path(path, name)
    return paths
