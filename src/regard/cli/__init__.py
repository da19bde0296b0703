"""The command `regard`: each verb is a thin call of the public functions."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

import regard
from regard.cli import (
    check,
    completion,
    distill,
    encoder_verbs as read,
    evaluate,
    import_export as exchange,
    info,
    look,
    make_shortlist as shortlist,
    output_paths as destination,
    plan,
    quantize,
    run_demo as demo,
    serve,
    serving_benchmark as bench,
    train,
    translate,
    welcome as start,
    write,
)
from regard.cli.argument_parser import Parser
from regard.errors import InputError, RegardError

EPILOG = """first steps:
  regard demo                                            train a small translator in minutes and look at it
  regard train memory.tmx -o runs/en-de                  train one on your own text (or train.en train.de)
  regard translate runs/en-de input.txt                  use it (or app.po -o app.de.po)
  regard serve runs/en-de                                use it in the browser, and from other programs
  regard evaluate runs/en-de test.en test.de             measure it
  regard look runs/en-de                                 look inside, in the browser
  regard train book.txt --task write -o runs/gpt         train a GPT; then regard write runs/gpt "Once upon a time"

regard VERB --help says more about each verb."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; a mistake of the user is one line on stderr and exit code 2."""
    parser = build_parser()
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # what is read as UTF-8 is written as UTF-8
    try:
        known, rest = parser.parse_known_args(arguments)
        parser.require_known(rest)
        if rest:
            raise InputError(f"unknown argument {rest[0]}: see regard {known.verb} --help")
        if known.verb is None:
            print(start.tell())
            return 0
        with destination.followed(known):
            code: int = known.run(known)
        sys.stdout.flush()
    except RegardError as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        if error.page and sys.stderr.isatty():  # for a person; a log has enough in one line
            print(f"  more about this: docs/{error.page}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `regard translate ... | head`
        _discard_output()
        return 0
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # such as a text in place of a file
            print(f"regard: {error.filename}: no such file or folder ({error.strerror})", file=sys.stderr)
            return 2
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        _discard_output()
        print(f"regard: {error.filename or 'the output'}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"regard: {str(stop) or 'stopped'}", file=sys.stderr)
        return 130
    return code


def _discard_output() -> None:
    """What is still to be printed goes nowhere, so that Python does not fail to print it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> Parser:
    parser = Parser(
        prog="regard",
        description="A Transformer that you train on your own text, run anywhere, and look into.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"regard {regard.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for module in (
        train,
        plan,
        distill,
        check,
        translate,
        write,
        read,
        evaluate,
        look,
        serve,
        exchange,
        quantize,
        shortlist,
        bench,
        info,
        demo,
        completion,
    ):
        module.add(verbs)
    return parser
