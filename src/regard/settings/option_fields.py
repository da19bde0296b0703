"""Derives a TOML key, a command-line flag, its help and a check from each field of a dataclass.

`width: Annotated[int, "width of the residual stream", at_least(1)] = 512` in the section `model` reads
`[model] width = 512` and `--model.width 512`, and rejects 0, "wide" and the misspelt `widht`.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from regard.errors import SettingsError

T = TypeVar("T")


@dataclass(frozen=True)
class Bounds:
    """The range of valid values of a number.

    Whole numbers without an upper bound have a high ceiling, which rejects absurd values early.
    """

    low: float = -math.inf
    high: float = math.inf
    high_allowed: bool = True
    ceiling: float = 1_000_000

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {'' if self.high_allowed else 'below '}{self.high:g}"

    def fault(self, value: float) -> str:
        """Returns the limit that a value violates, or an empty string."""
        if self.high == math.inf and isinstance(value, int) and value > self.ceiling:
            return f"at most {self.ceiling:,}"
        admitted = self.low <= value and (value <= self.high if self.high_allowed else value < self.high)
        return "" if admitted else str(self)


def at_least(low: float, ceiling: float = Bounds.ceiling) -> Bounds:
    """Returns bounds without an upper end."""
    return Bounds(low, ceiling=ceiling)


HUGE = 2**63
"""Ceiling of numbers that may be very large, such as steps, tokens and seeds."""
CHANCE = Bounds(0, 1, high_allowed=False)
SHARE = Bounds(0, 1)


class Section:
    """A group of settings; creating one with an invalid value raises SettingsError."""

    def __post_init__(self) -> None:
        name = type(self).__name__.removesuffix("Settings").lower()
        for option in options(type(self)):
            if "." not in option.path:
                value = convert(option, getattr(self, option.path), f"{name}." if name else "")
                object.__setattr__(self, option.path, value)


@dataclass(frozen=True)
class Option:
    """One setting: its dotted name, type, default value, help text and bounds."""

    path: str
    type: Any
    default: Any
    help: str
    bounds: Bounds | None


def options(schema: type, prefix: str = "") -> tuple[Option, ...]:
    """Returns every setting of `schema`, in order of declaration."""
    return _options(cast("Hashable", schema), prefix)


@cache  # every translation calls this, and a short one takes only a few milliseconds
def _options(schema: Any, prefix: str) -> tuple[Option, ...]:
    found: list[Option] = []
    hints = _hints(schema)
    for f in fields(schema):
        hint, *notes = get_args(hints[f.name]) if get_origin(hints[f.name]) is Annotated else (hints[f.name],)
        if is_dataclass(hint):
            found += _options(cast("Hashable", hint), f"{prefix}{f.name}.")
        else:
            found.append(Option(prefix + f.name, hint, f.default, notes[0], notes[1] if len(notes) > 1 else None))
    return tuple(found)


@cache
def _hints(schema: Any) -> dict[str, Any]:
    return get_type_hints(schema, include_extras=True)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested tables of `base`, updated with the values of `changes`."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def build(schema: type[T], values: Mapping[str, Any], prefix: str = "", known: Sequence[str] = ()) -> T:
    """Returns an instance of `schema` made from nested values; raises SettingsError for invalid names and values."""
    known = known or [option.path for option in options(schema)]
    hints = _hints(cast("Hashable", schema))
    leaves = {option.path: option for option in options(schema)}
    built = {}
    for name, value in values.items():
        if name not in hints:
            if isinstance(value, Mapping):
                known = list(dict.fromkeys(path.rpartition(".")[0] for path in known))
            raise SettingsError(f"unknown setting {prefix}{name}{_did_you_mean(prefix + name, known)}")
        if is_dataclass(hints[name]):
            if not isinstance(value, Mapping):
                raise SettingsError(f"{prefix}{name} must be a table of settings, not {value!r}")
            built[name] = build(hints[name], value, f"{prefix}{name}.", known)
        else:
            built[name] = convert(leaves[name], value, prefix)
    return schema(**built)


def _did_you_mean(path: str, known: Sequence[str]) -> str:
    leaf = path.rpartition(".")[2]
    same_leaf = [name for name in known if name.rpartition(".")[2] == leaf]
    close = same_leaf or difflib.get_close_matches(path, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def convert(option: Option, value: Any, prefix: str = "") -> Any:
    """Converts a TOML value or the text of a flag to the declared type, and checks its bounds."""
    path = prefix + option.path
    converted = _as_type(option.type, value, path)
    numbers = converted if isinstance(converted, tuple) else (converted,)
    for number in numbers:
        if isinstance(number, float) and not math.isfinite(number):
            raise SettingsError(f"{path} must be a finite number, not {number}")
        if option.bounds is not None and number is not None and (fault := option.bounds.fault(number)):
            raise SettingsError(f"{path} must be {fault}, not {number}")
    return converted


def _as_type(hint: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None or value == "none":
            return None
        return _as_type(next(a for a in args if a is not type(None)), value, path)
    if origin is Literal:
        if value not in args:
            raise SettingsError(f"{path} must be one of {', '.join(map(str, args))}, not {value!r}")
        return value
    if origin is tuple:
        items = (value.split(",") if value else []) if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise SettingsError(f"{path} must be values separated by commas, not {value!r}")
        return tuple(_as_type(args[0], item, path) for item in items)
    if hint is bool and isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    if (isinstance(value, str) and hint in (int, float)) or (hint is float and type(value) is int):
        try:
            return hint(value)
        except (ValueError, OverflowError):
            raise SettingsError(f"{path} must be {NAMES[hint]}, not {value!r}") from None
    if type(value) is not hint:
        raise SettingsError(f"{path} must be {NAMES[hint]}, not {value!r}")
    return value


NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def dump(section: Section, table: str = "") -> str:
    """Returns `section` as TOML, from which `build` restores an equal object; settings that are None are left out."""
    lines, tables = [], []
    for f in fields(section):  # type: ignore[arg-type]
        value = getattr(section, f.name)
        if isinstance(value, Section):
            tables.append(dump(value, f"{table}.{f.name}" if table else f.name))
        elif value is not None:
            lines.append(f"{f.name} = {_toml(value)}")
    head = [f"[{table}]"] if table else []
    return "\n".join([*head, *lines]) + "\n" + "".join("\n" + t for t in tables)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else {"\\": "\\\\", '"': '\\"'}.get(c, c) for c in value
        )
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
