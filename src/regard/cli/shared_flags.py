"""Command-line flags that several verbs share, and the flags of the settings."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from regard.decoding.model_loading import ENGINES, PRECISIONS
from regard.errors import InputError
from regard.files.check_thresholds import CheckSettings
from regard.settings import DataSettings, DecodingSettings, Settings
from regard.settings.option_fields import Option, options

Verbs = Any  # argparse has no public type for the result of add_subparsers


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds a flag `--section.name` for each setting; flags that are not used set no attribute of the namespace."""
    groups: dict[str, Any] = {}
    for option in options(Settings):
        section, _, name = option.path.rpartition(".")
        if not name or not section:
            continue
        if section not in groups:
            groups[section] = parser.add_argument_group(f"{section} settings")
        _add_option(groups[section], option, f"--{option.path}", option.path)


def add_training(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `regard train`, `distill` and `plan`: preset, device, settings file and settings."""
    presets = "{tiny,small,base,big,modern}"
    text = "size of the model (default: chosen by the size of the corpus)"
    parser.add_argument("--preset", metavar=presets, help=text)
    add_device(parser, dest="training.device", default=argparse.SUPPRESS)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="a TOML file of settings; flags override it")
    add_settings(parser)


def add_languages(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that name the two languages of a corpus."""
    for side in ("source", "target"):
        text = f"{side} language (default: read from the file or its name)"
        parser.add_argument(f"--{side}", dest=f"data.{side}", default=argparse.SUPPRESS, metavar="LANGUAGE", help=text)


def add_check(parser: argparse.ArgumentParser) -> None:
    """Adds the thresholds of `regard check` and the flags that describe its corpus."""
    group = parser.add_argument_group("thresholds")
    for option in options(CheckSettings):
        _add_option(group, option, f"--check.{option.path}", f"check.{option.path}")
    flags = {"source": "--source", "target": "--target", "directions": "--directions"}
    flags["max_characters"] = "--data.max_characters"
    group = parser.add_argument_group("corpus")
    for option in options(DataSettings):
        if option.path in flags:
            _add_option(group, option, flags[option.path], f"data.{option.path}")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Adds a flag `--name` for each decoding setting; the defaults are those of the model folder."""
    group = parser.add_argument_group("decoding", "the model folder may set other defaults")
    for option in options(DecodingSettings):
        _add_option(group, option, f"--{option.path.replace('_', '-')}", f"decoding.{option.path}")


def _add_option(group: Any, option: Option, flag: str, destination: str) -> None:
    default = "none" if option.default in (None, ()) else _as_text(option.default)
    text = f"{option.help} (default: {default})".replace("%", "%%")
    values = _name_values(option.type)
    group.add_argument(flag, dest=destination, default=argparse.SUPPRESS, metavar=values, help=text)


def _as_text(value: Any) -> str:
    """True -> true, (0.9, 0.98) -> 0.9,0.98"""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name_values(kind: Any) -> str:
    """Returns the placeholder that the help shows for values of a type, such as N or {true,false}."""
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if get_origin(kind) is tuple:
        return "LIST"
    names = {bool: "{true,false}", int: "N", float: "X"}
    return next((name for each, name in names.items() if each in (kind, *get_args(kind))), "TEXT")


def setting_overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the preset, the task and the settings passed as flags, keyed by name, such as "model.width"."""
    named = {name: getattr(arguments, name, None) for name in ("preset", "task")}
    dotted = {name: value for name, value in vars(arguments).items() if "." in name}
    return {**dotted, **{name: value for name, value in named.items() if value is not None}}


def decoding_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the decoding settings passed as flags."""
    values = vars(arguments).items()
    return {name.removeprefix("decoding."): value for name, value in values if name.startswith("decoding.")}


def add_device(parser: Any, *, dest: str = "device", default: str = "auto") -> None:
    text = "device to compute on (default: auto)"
    parser.add_argument("--device", dest=dest, default=default, metavar="{auto,cpu,cuda,mps}", help=text)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose the device and the decoding engine."""
    group = parser.add_argument_group("engine")
    add_device(group)
    text = "native (C++, CPU only), torch, or auto (native if possible, else torch; default: auto)"
    group.add_argument("--engine", choices=ENGINES, default="auto", help=text)
    text = "precision of the native engine; auto: the precision of the model (default: auto)"
    group.add_argument("--precision", choices=PRECISIONS, default="auto", help=text)
    text = "number of threads of the native engine (default: one per processor)"
    group.add_argument("--threads", type=count_up_to_1024, metavar="N", help=text)


def add_shortlist(parser: argparse.ArgumentParser) -> None:
    text = "score only the likely tokens that regard shortlist has learned: faster, almost the same output"
    parser.add_argument("--shortlist", action="store_true", help=text)


def add_translating(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the verbs that translate: direction, engine, shortlist and decoding settings."""
    group = parser.add_argument_group("direction", "for models with several directions; regard info MODEL lists them")
    group.add_argument("--from", dest="source", metavar="LANGUAGE", help="language of the text")
    group.add_argument("--to", dest="target", metavar="LANGUAGE", help="language to translate into")
    group.add_argument("--zero-shot", action="store_true", help="allow a direction that the model was not trained on")
    add_engine(parser)
    add_shortlist(parser)
    add_decoding(parser)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the engine flags as arguments of `load_as`."""
    names = ("device", "engine", "precision", "threads", "shortlist")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def direction_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the direction flags as arguments of `Translator.direction`."""
    return {name: getattr(arguments, name) for name in ("source", "target", "zero_shot")}


def translating_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the direction and decoding flags as arguments of `Translator.translate`."""
    return {**direction_options(arguments), **decoding_options(arguments)}


def reject_flags(flags: dict[str, Any], message: str) -> None:
    """Raises an error if one of the flags has a value; the message begins with the name of the flag."""
    for flag, value in flags.items():
        if value:
            raise InputError(f"{flag} {message}")


def number(low: float, high: float = math.inf, kind: Callable[[str], float] = int) -> Callable[[str], Any]:
    """Returns a function that parses a number from `low` to `high`, such as 4000000, 4_000_000 or 4,000,000."""
    limits = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"

    def parse(text: str) -> float:
        try:
            value = kind(text.replace("_", "").replace(",", ""))
        except ValueError:
            value = math.nan
        if not (low <= value <= high and value < math.inf):
            name = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"must be a {name} {limits}, not {text}")
        return value

    return parse


count = number(1)
count_up_to_1024 = number(1, 1024)  # number of threads or processes


def positive_number(text: str) -> float:
    """Parses a number above 0."""
    value: float = number(0, kind=float)(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be a number above 0, not 0")
    return value
