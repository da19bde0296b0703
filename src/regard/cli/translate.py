"""regard translate: lines in, lines out; documents in, documents out."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.cli import (
    glossary_options as terms,
    output_paths as destination,
    translate_bulk as bulk,
    translate_documents as documents,
)
from regard.cli.setting_flags import (
    Verbs,
    add_decoding,
    add_direction,
    add_engine,
    add_shortlist,
    decoding_options,
    direction_options,
    engine_options,
)
from regard.errors import DataError, InputError
from regard.files.formats.format_by_suffix import FILLABLE, NOT_LINES, has_plain_name, require_plain, suffix
from regard.files.remote_files import RemotePath, as_path
from regard.jobs.output_lines import format_translation

if TYPE_CHECKING:
    from regard.decoding.translator import Translator


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "translate",
        help="translate text with a trained model",
        description="Translates FILE, or standard input, line by line; every input line gives one output line. Of a "
        "document (PO, TMX, XLIFF, subtitles, ...), fills in what is not translated; the rest stays as it is.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument(
        "files",
        nargs="*",
        default=[],
        metavar="FILE",
        help="a text file, a sentence a line (standard input), or documents",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where the translations go (standard output)")
    parser.add_argument("--scores", action="store_true", help="put the score and a tab before each translation")
    parser.add_argument("--json", action="store_true", help="a JSON object a line: scores, tokens, alternatives")
    parser.add_argument(
        "--stream", action="store_true", help="print each word as soon as it is there (greedy or drawn)"
    )
    parser.add_argument(
        "--protect", action="store_true", help="keep placeholders, tags and addresses of plain text (documents: always)"
    )
    parser.add_argument(
        "--plain", action="store_true", help="take FILE as plain text, a sentence a line, whatever its name and content"
    )
    terms.add_flag(parser)
    documents.add_flags(parser)
    bulk.add_flags(parser)
    add_direction(parser)
    add_engine(parser)
    add_shortlist(parser)
    add_decoding(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    require_format(arguments)
    require_plain_output(arguments)
    if arguments.cluster is not None:
        return bulk.run(arguments)
    bulk.refuse_flags(arguments)
    if documents.are_meant(arguments):
        return documents.run(arguments)
    if arguments.stream and (arguments.json or arguments.scores or arguments.output):
        raise InputError("--stream prints plain text as it comes: it cannot be combined with --json, --scores or -o")
    if arguments.protect and (arguments.stream or "decoding.alternatives" in vars(arguments)):
        raise InputError(
            "--protect checks one whole translation: it cannot be combined with --stream or --alternatives"
        )
    documents.refuse_flags(arguments)
    require_output(arguments)
    require_utf8(next(iter(arguments.files), None))
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    with open_source(next(iter(arguments.files), None)) as source:
        translator = load_as(Translator, arguments.model, **engine_options(arguments))
        translator.decoding(decoding_options(arguments))  # a bad option is refused before any text is read
        direction = translator.direction(**direction_options(arguments))
        translate(translator, source, arguments, terms.glossary_option(arguments, direction))
    return 0


def require_format(arguments: argparse.Namespace) -> None:
    """Refuses a file whose markup would be translated as if it were text, before a model is loaded."""
    if arguments.plain:
        if len(arguments.files) > 1:
            raise InputError("--plain is for one file: translate each of them by itself")
        return
    for name in arguments.files if len(arguments.files) == 1 else []:
        path = as_path(name)
        if name == "-" or path.is_dir() or not path.exists() or documents.fillable(path):
            continue
        known = f"Regard fills in {', '.join(FILLABLE)}; to translate it line by line as plain text, add --plain"
        if not has_plain_name(path):
            raise DataError(f"{suffix(path)} is not a format that Regard knows: {known}", path)
        require_plain(path, known)


def require_output(arguments: argparse.Namespace) -> None:
    """Refuses an output that cannot be written, or that this command reads."""
    reads = [next(iter(arguments.files), None), arguments.model, arguments.memory, arguments.glossary]
    if arguments.output is not None:
        destination.require_file(arguments.output, reads[:2] + [name for name in reads[2:] if name])


def require_plain_output(arguments: argparse.Namespace) -> None:
    """Refuses an output whose name promises more than lines of text."""
    path = Path(arguments.output or "")
    if suffix(path) in NOT_LINES and not arguments.plain and not documents.are_meant(arguments):
        name = path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".txt")
        raise InputError(f"{path}: lines of text do not become a {suffix(path)} file: name the output {name}")


def require_utf8(name: str | None) -> None:
    """Refuses a file with a line that is not UTF-8, before any is translated; what is not a file is read later."""
    if name not in (None, "-") and Path(str(name)).is_file():
        with open_source(name) as source:
            deque(read_lines(source, str(name)), 0)


@contextmanager
def open_source(name: str | None) -> Iterator[BinaryIO]:
    """A file, or standard input; another thread may wait for more of it when it is closed."""
    here = name is None or name == "-"
    if here and not isinstance(sys.stdin.buffer, io.BufferedReader):
        yield sys.stdin.buffer
        return
    if not here and isinstance(path := as_path(name or ""), RemotePath):
        with path.open("rb") as remote:
            yield remote
        return
    try:  # not sys.stdin itself, which Python could not close at its end while a thread waits for it
        source = open(sys.stdin.fileno() if here else str(name), "rb", closefd=not here)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    try:
        yield source
    finally:
        source.raw.close()  # its buffer would wait for that thread


def translate(
    translator: Translator, source: BinaryIO, arguments: argparse.Namespace, glossary: dict[str, Any]
) -> None:
    """Reads lines from `source`, writes their translations where the flags say."""
    options: dict[str, Any] = {**direction_options(arguments), **decoding_options(arguments), **glossary}
    typed, total = source.isatty(), bytes_of(source)
    sizes: deque[int] | None = None if typed or arguments.stream or not watched(arguments) else deque()
    lines = read_lines(source, next(iter(arguments.files), "standard input"), sizes)
    if arguments.stream:
        for line in lines:
            for piece in translator.stream(line, **options):
                print(piece.replace("\n", " "), end="", flush=True)
            print(flush=True)
        return
    stream = translator.translate_stream
    if arguments.protect:
        from regard.faithful.faithful_translation import Faithful

        stream = Faithful(translator).translate_stream
    if arguments.memory:
        from regard.faithful import document_translation as filling

        memory = documents.open_memory(arguments, translator)
        together = 1 if typed else filling.TOGETHER
        found = filling.lines(lines, lambda texts: list(stream(texts, **options)), memory, together)
    elif typed:  # somebody types: answer each line at once
        found = (each for line in lines for each in stream([line], **options))
    else:
        found = stream(lines, **options)
    if sizes is not None:
        from regard.cli.progress_bar import metered

        found = metered(found, sizes, total)
    if glossary:
        found = terms.telling(found)
    several = "alternatives" in options or translator.settings.decoding.alternatives > 0
    with closing(found):
        form: dict[str, bool] = {"scores": arguments.scores, "as_json": arguments.json, "several": several}
        rows = (row for number, each in enumerate(found, 1) for row in format_translation(each, number=number, **form))
        if arguments.output:
            from regard.atomic_files import write_atomically

            write_atomically(Path(arguments.output), lambda path: write_rows(path, rows))
        else:
            show(rows, typed)


def show(rows: Iterable[str], typed: bool) -> None:
    """Prints lines of text."""
    count = 0
    try:
        for row in rows:
            print(row, flush=typed)
            count += 1
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped after {count:,} lines") from None


def bytes_of(source: BinaryIO) -> int | None:
    """The size of a file; of a pipe nobody knows it."""
    with suppress(OSError):
        found = os.fstat(source.fileno())
        if stat.S_ISREG(found.st_mode):
            return found.st_size or None
    return None


def watched(arguments: argparse.Namespace) -> bool:
    """Whether somebody looks at standard error, and the translations go elsewhere."""
    return sys.stderr.isatty() and (arguments.output is not None or not sys.stdout.isatty())


def read_lines(source: BinaryIO, name: str, sizes: deque[int] | None = None) -> Iterator[str]:
    """Lines of UTF-8, split at line feeds only, so that every other character but a byte-order mark stays.

    The bytes of each line are added to `sizes`.
    """
    for number, line in enumerate(source, 1):
        if sizes is not None:
            sizes.append(len(line))
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}:{number}: not UTF-8 ({error.reason}): convert it with iconv") from None


def write_rows(path: Path, rows: Iterable[str]) -> None:
    """Writes lines of text."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(row + "\n")
