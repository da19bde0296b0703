"""The command `regard`: each verb is a module that parses its flags and calls the public functions of the package."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

import regard
from regard.cli import (
    check,
    completion,
    encoder_verbs,
    evaluate,
    import_export,
    info,
    look,
    make_shortlist,
    plan,
    publish,
    run_demo,
    serve,
    serving_benchmark,
    train,
    translate,
    write,
)
from regard.cli.argument_parser import Parser
from regard.cli.output_paths import report_outputs
from regard.cli.welcome import welcome
from regard.errors import InputError, RegardError

VERBS = (
    *(train, plan, check, translate, write, encoder_verbs, evaluate, look, publish, serve),
    *(import_export, make_shortlist, serving_benchmark, info, run_demo),
)
"""Modules that define the verbs, in the order in which `regard --help` lists them."""

EPILOG = """first steps:
  regard demo                                 train a small translator in minutes
  regard train memory.tmx -o runs/en-de       train one on your own text
  regard translate runs/en-de input.txt       use it (or app.po -o app.de.po)
  regard serve runs/en-de                     use it in a browser, or from programs
  regard evaluate runs/en-de test.en test.de  measure it
  regard look runs/en-de                      look inside it, in a browser
  regard train book.txt --task write          train a GPT instead

regard VERB --help describes each verb."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. A user error prints one line on standard error and returns 2."""
    parser = build_parser()
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # like the input
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    try:
        known, unknown = parser.parse_known_args(words)
        parser.require_known(unknown)
        if unknown:
            raise InputError(f"unknown argument {unknown[0]}: see regard {known.verb} --help")
        if known.verb is None:
            print(welcome())
            return 0
        with report_outputs(known):
            code: int = known.run(known)
        sys.stdout.flush()
    except RegardError as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        if error.page and sys.stderr.isatty():  # a log file needs only the first line
            print(f"  more about this: docs/{error.page}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader closed the pipe, as in `regard translate ... | head`
        _discard_output()
        return 0
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # for example, a sentence was passed instead of a file name
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
    """Redirects standard output to the null device, because Python would fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> Parser:
    """Builds the parser for the command `regard` with all its verbs."""
    about = "A Transformer that you train on your own text, run anywhere, and look into."
    parser = Parser(prog="regard", description=about, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"regard {regard.__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
    for module in VERBS:
        module.add(verbs)
    completion.add(verbs, parser)
    return parser
