"""regard translate: lines in, lines out."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.cli.flags import (
    Verbs,
    add_decoding,
    add_direction,
    add_engine,
    decoding_options,
    direction_options,
    engine_options,
)
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.decoding.translator import Translation


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "translate",
        help="translate text with a trained model",
        description="Translates FILE, or standard input, line by line; every input line gives one output line.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("file", nargs="?", metavar="FILE", help="a text file, a sentence a line (standard input)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where the translations go (standard output)")
    parser.add_argument("--scores", action="store_true", help="put the score and a tab before each translation")
    parser.add_argument("--json", action="store_true", help="a JSON object a line: scores, tokens, alternatives")
    parser.add_argument(
        "--stream", action="store_true", help="print each word as soon as it is there (greedy or drawn)"
    )
    add_direction(parser)
    add_engine(parser)
    add_decoding(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.stream and (arguments.json or arguments.scores or arguments.output):
        raise InputError("--stream prints plain text as it comes: it cannot be combined with --json, --scores or -o")
    with open_source(arguments.file) as source:
        translate(source, arguments)
    return 0


def open_source(name: str | None) -> AbstractContextManager[BinaryIO]:
    if name is None or name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None


def translate(source: BinaryIO, arguments: argparse.Namespace) -> None:
    """Reads lines from `source`, writes their translations where the flags say."""
    from regard.decoding.engine import load_as
    from regard.decoding.translator import Translator

    translator = load_as(Translator, arguments.model, **engine_options(arguments))
    options, way = decoding_options(arguments), direction_options(arguments)
    chosen = translator.decoding(options)  # a bad option is refused before any text is read
    translator.direction(**way)
    several = chosen.alternatives > 0 or "alternatives" in options
    lines = read_lines(source, arguments.file or "standard input")
    if arguments.stream:
        for line in lines:
            for piece in translator.stream(line, **way, **options):
                print(piece.replace("\n", " "), end="", flush=True)
            print(flush=True)
        return
    if source.isatty():  # somebody types: answer each line at once
        found: Iterator[Translation] = (translator.translate([line], **way, **options)[0] for line in lines)
    else:
        found = translator.translate_stream(lines, **way, **options)
    rows = (line for number, t in enumerate(found, 1) for line in format_lines(number, t, arguments, several))
    if arguments.output:
        from regard.folder import write_atomically

        write_atomically(arguments.output, lambda path: write_rows(path, rows))
    else:
        for row in rows:
            print(row, flush=source.isatty())


def read_lines(source: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8, split at line feeds only, so that every other character but a byte-order mark stays."""
    for number, line in enumerate(source, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}:{number}: not UTF-8 ({error.reason}): convert it with iconv") from None


def format_lines(number: int, found: Translation, arguments: argparse.Namespace, several: bool) -> Iterator[str]:
    """The output lines of one input line; with alternatives, `several` that begin with the line's number."""
    if arguments.json:
        yield json.dumps(_plain(found), ensure_ascii=False)
        return
    for each in (found, *found.alternatives):
        columns = [str(number)] if several else []
        columns += [f"{each.score:.4f}"] if arguments.scores or several else []
        yield "\t".join([*columns, each.text.replace("\n", " ")])


def _plain(found: Translation) -> dict[str, Any]:
    plain = asdict(found)
    plain["alternatives"] = [_plain(other) for other in found.alternatives]
    return plain


def write_rows(path: Path, rows: Iterable[str]) -> None:
    """Writes lines of text."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(row + "\n")
