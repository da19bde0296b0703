"""Settings as command-line flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from regard.decoding.model_loading import ENGINES, PRECISIONS
from regard.files.check_thresholds import CheckSettings
from regard.settings import DataSettings, DecodingSettings, Settings
from regard.settings.option_fields import Option, options

Verbs = Any  # argparse does not name the type of what add_subparsers returns


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag `--section.name` for every setting; one that is not given leaves no trace."""
    groups: dict[str, Any] = {}
    for option in options(Settings):
        section, _, name = option.path.rpartition(".")
        if not name or not section:
            continue
        if section not in groups:
            groups[section] = parser.add_argument_group(f"{section} settings")
        _add(groups[section], option, f"--{option.path}", option.path)


def add_shape(parser: argparse.ArgumentParser) -> None:
    """The flags that say what is trained, and where, of every verb that trains or reckons what training costs."""
    parser.add_argument("--preset", default=None, help="tiny, small, base, big, modern (by corpus size)")
    parser.add_argument(
        "--device", dest="training.device", default=argparse.SUPPRESS, help="auto, cpu, cuda or mps (auto)"
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="a TOML file of settings; flags go before it")
    add_settings(parser)


def add_languages(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that name the two languages of a corpus, for every verb that trains or plans."""
    parser.add_argument(
        "--source",
        dest="data.source",
        default=argparse.SUPPRESS,
        metavar="LANGUAGE",
        help="language of the source (from the file or its name)",
    )
    parser.add_argument(
        "--target",
        dest="data.target",
        default=argparse.SUPPRESS,
        metavar="LANGUAGE",
        help="language of the target (from the file or its name)",
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    """The flags that say what is looked for in a corpus, and which corpus it is."""
    group = parser.add_argument_group("thresholds")
    for option in options(CheckSettings):
        _add(group, option, f"--check.{option.path}", f"check.{option.path}")
    flags = {"source": "--source", "target": "--target", "directions": "--directions"}
    flags["max_characters"] = "--data.max_characters"
    group = parser.add_argument_group("corpus")
    for option in options(DataSettings):
        if option.path in flags:
            _add(group, option, flags[option.path], f"data.{option.path}")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """A flag `--name` for every decoding setting; the model folder has the defaults."""
    group = parser.add_argument_group("decoding", "defaults are the model's own")
    for option in options(DecodingSettings):
        _add(group, option, f"--{option.path.replace('_', '-')}", f"decoding.{option.path}")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The flags that say what does the work."""
    group = parser.add_argument_group("engine")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (auto)")
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="native is C++ on the CPU; auto takes it where it can",
    )
    group.add_argument(
        "--precision", choices=PRECISIONS, default="auto", help="of the native engine; auto: the model's"
    )
    group.add_argument("--threads", type=threads, metavar="N", help="of the native engine (all processors)")


def add_shortlist(parser: argparse.ArgumentParser) -> None:
    """The flag of the verbs that translate."""
    told = "write the tokens alone that regard shortlist has found likely: faster, hardly different"
    parser.add_argument("--shortlist", action="store_true", help=told)


def threads(text: str) -> int:
    """A number of threads, as a flag gives it."""
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 1024")
    return int(text)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the flags say of the engine, as `load_as` takes it."""
    names = ("device", "engine", "precision", "threads", "shortlist")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def add_direction(parser: argparse.ArgumentParser) -> None:
    """The flags that say from which language to translate into which."""
    group = parser.add_argument_group("direction", "of a model that has several; regard info MODEL lists them")
    group.add_argument("--from", dest="source", metavar="LANGUAGE", help="language of the text")
    group.add_argument("--to", dest="target", metavar="LANGUAGE", help="language to translate into")
    group.add_argument("--zero-shot", action="store_true", help="allow a direction that the model was not trained on")


def direction_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the flags say of the direction, as a translator takes it."""
    return {name: getattr(arguments, name) for name in ("source", "target", "zero_shot")}


def _add(group: Any, option: Option, flag: str, destination: str) -> None:
    choices = get_args(option.type) if get_origin(option.type) is Literal else ()
    default = "none" if option.default is None else option.default
    default = ",".join(map(str, default)) if isinstance(default, tuple) else str(default).replace("True", "true")
    text = option.help + (f": {', '.join(choices)}" if choices else "") + f" ({default.replace('False', 'false')})"
    group.add_argument(flag, dest=destination, default=argparse.SUPPRESS, metavar="", help=text.replace("%", "%%"))


def dotted(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings among the parsed flags, by their dotted names."""
    return {name: value for name, value in vars(arguments).items() if "." in name}


def overrides_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The same, with the preset and the task, which have flags of their own."""
    named = {name: getattr(arguments, name, None) for name in ("preset", "task")}
    return {**dotted(arguments), **{name: value for name, value in named.items() if value is not None}}


def decoding_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The decoding settings among the parsed flags, by their names."""
    return {name.removeprefix("decoding."): value for name, value in dotted(arguments).items()}
