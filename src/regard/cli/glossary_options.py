"""--glossary: the terms that translations have to use, and what is said of those that they do not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from regard.errors import InputError
from regard.settings import DataSettings

if TYPE_CHECKING:
    from regard.decoding.translator import Translation
    from regard.tokens.directions import Direction

MOST_TOLD = 20
"""Lines about single terms on standard error."""


def add_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--glossary",
        metavar="TERMS",
        help="a CSV, TSV (source, target, forbidden, note) or TBX file of terms that must be used, or must not",
    )


def glossary_option(arguments: argparse.Namespace, direction: Direction) -> dict[str, Any]:
    """The glossary as an option of `translate`, in the languages of the translation as far as they are known."""
    if arguments.glossary is None:
        return {}
    if arguments.stream:
        raise InputError("--stream prints each word as soon as it is there: it cannot be combined with --glossary")
    from regard.faithful.glossary import Glossary

    unknown = (DataSettings.source, DataSettings.target)
    languages = ("" if name in unknown else name for name in (direction.source, direction.target))
    return {"glossary": Glossary.read(arguments.glossary, *languages)}


def telling(translations: Generator[Translation, None, None]) -> Generator[Translation, None, None]:
    """The translations of lines; at the end, standard error is told which terms are not as they should be."""
    from regard.faithful.glossary import Tally

    tally, told = Tally(), list[str]()
    with closing(translations):
        for number, each in enumerate(translations, 1):
            tally.add(each.glossary)
            faults = [outcome for outcome in each.glossary if outcome.state != "placed"]
            told += [f"line {number}: {outcome}" for outcome in faults[: MOST_TOLD - len(told)]]
            yield each
    print(*told, tally, sep="\n", file=sys.stderr)
