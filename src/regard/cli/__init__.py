"""The command `regard`: each verb is a thin call of the public functions."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import regard
from regard.cli import demo, evaluate, info, train, translate
from regard.cli.flags import unknown_flag
from regard.errors import RegardError

EPILOG = """first steps:
  regard demo                                            train a small translator in minutes and look at it
  regard train train.en train.de -o runs/en-de           train one on your own text
  regard translate runs/en-de input.txt                  use it
  regard evaluate runs/en-de test.en test.de             measure it

regard VERB --help says more about each verb."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; a mistake of the user is one line on stderr and exit code 2."""
    parser = build_parser()
    try:
        known, rest = parser.parse_known_args(arguments)
        if rest:
            raise unknown_flag(known.verb, rest[0])
        if known.verb is None:
            parser.print_help()
            return 0
        code: int = known.run(known)
        sys.stdout.flush()
    except RegardError as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `regard translate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regard",
        description="A Transformer that you train on your own text, run anywhere, and look into.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"regard {regard.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for module in (train, translate, evaluate, info, demo):
        module.add(verbs)
    return parser
