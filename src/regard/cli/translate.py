"""regard translate: translates lines of text, and passes documents and very large files on to the modules for them."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections import Counter, deque
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.cli import shared_flags as flags, translate_bulk as bulk, translate_documents as documents
from regard.cli.output_paths import require_output
from regard.cli.text_lines import open_source, read_lines, require_utf8, write_lines
from regard.errors import DataError, InputError
from regard.files.formats.format_by_suffix import FILLABLE, NOT_LINES, has_plain_name, require_plain, suffix
from regard.files.remote_files import as_path
from regard.jobs.output_lines import format_translation

if TYPE_CHECKING:
    from regard.decoding.translation_results import Translation
    from regard.decoding.translator import Translator

DESCRIPTION = """Translates FILE, or standard input, line by line; each input line gives one output line. In a document
(PO, TMX, XLIFF, subtitles and other formats), it fills in the missing translations and changes nothing else.

  echo "A dog runs." | regard translate runs/en-de
  regard translate runs/en-de input.txt -o output.txt
  regard translate runs/en-de app.po -o app.de.po"""

MAX_FAULTS = 20
"""Maximum number of glossary errors that are reported one by one on standard error."""


def add(verbs: flags.Verbs) -> None:
    parser = verbs.add_parser("translate", help="translate text with a trained model", description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("model", metavar="MODEL", help="a model folder")
    text = "a text file with one sentence per line, or documents (default: standard input)"
    add("files", nargs="*", default=[], metavar="FILE", help=text)
    add("-o", "--output", metavar="FILE", help="where to write the translations (default: standard output)")
    add("--scores", action="store_true", help="print the score and a tab before each translation")
    add("--json", action="store_true", help="print a JSON object per line: scores, tokens, alternatives")
    add("--stream", action="store_true", help="print each word as soon as it is decoded (greedy search or sampling)")
    add(
        "--protect",
        action="store_true",
        help="keep placeholders, tags and addresses unchanged (always on when translating documents)",
    )
    add("--plain", action="store_true", help="read FILE as plain text, one sentence per line, whatever its suffix")
    text = "a CSV, TSV (source, target, forbidden, note) or TBX file of required and forbidden terms"
    add("--glossary", metavar="TERMS", help=text)
    documents.add_flags(parser)
    bulk.add_flags(parser)
    flags.add_translating(parser)


def run(arguments: argparse.Namespace) -> int:
    from regard.model_folder import check_folder

    check_folder(Path(arguments.model))
    _require_known_format(arguments)
    _require_text_output(arguments)
    if arguments.cluster is not None:
        return bulk.run(arguments)
    bulk.reject_flags(arguments)
    if documents.are_documents(arguments):
        return documents.run(arguments)
    if arguments.stream and (arguments.json or arguments.scores or arguments.output):
        raise InputError("--stream prints plain text word by word: it cannot be combined with --json, --scores or -o")
    if arguments.protect and (arguments.stream or "alternatives" in flags.decoding_options(arguments)):
        raise InputError("--protect checks whole translations: it cannot be combined with --stream or --alternatives")
    documents.reject_flags(arguments)
    name = next(iter(arguments.files), None)
    others = [path for path in (arguments.memory, arguments.glossary) if path]
    require_output(arguments.output, [name, arguments.model, *others])
    require_utf8(name)
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    with open_source(name) as source:
        translator = load_as(Translator, arguments.model, **flags.engine_options(arguments))
        options = documents.translation_options(arguments, translator)  # reports a bad option before reading any text
        if arguments.stream:
            _print_stream(translator, source, name, options)
        else:
            _translate_lines(translator, source, arguments, options)
    return 0


def _require_known_format(arguments: argparse.Namespace) -> None:
    """Raises an error, before a model is loaded, if the markup of a file would be translated as text."""
    if arguments.plain:
        if len(arguments.files) > 1:
            raise InputError("--plain is for one file: run the command once for each file")
        return
    for name in arguments.files if len(arguments.files) == 1 else []:
        path = as_path(name)
        if name == "-" or path.is_dir() or not path.exists() or documents.is_fillable(path):
            continue
        known = f"Regard fills in {', '.join(FILLABLE)}; to translate it line by line as plain text, add --plain"
        if not has_plain_name(path):
            raise DataError(f"{suffix(path)} is not a format that Regard knows: {known}", path)
        require_plain(path, known)


def _require_text_output(arguments: argparse.Namespace) -> None:
    """Raises an error if lines of text would be written to a file with the suffix of another format."""
    path = Path(arguments.output or "")
    if suffix(path) in NOT_LINES and not arguments.plain and not documents.are_documents(arguments):
        name = path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".txt")
        raise InputError(
            f"{path}: the translations are lines of text, not a {suffix(path)} file: name the output {name}"
        )


def _print_stream(translator: Translator, source: BinaryIO, name: str | None, options: dict[str, Any]) -> None:
    for line in read_lines(source, name or "standard input"):
        for piece in translator.stream(line, **options):
            print(piece.replace("\n", " "), end="", flush=True)
        print(flush=True)


def _translate_lines(
    translator: Translator, source: BinaryIO, arguments: argparse.Namespace, options: dict[str, Any]
) -> None:
    """Reads lines from `source` and writes their translations to the output."""
    is_typed, has_watcher = source.isatty(), arguments.output is not None or not sys.stdout.isatty()
    sizes: deque[int] | None = deque() if has_watcher and sys.stderr.isatty() and not is_typed else None
    lines = read_lines(source, next(iter(arguments.files), "standard input"), sizes)
    stream = translator.translate_stream
    if arguments.protect:
        from regard.faithful.faithful_translation import Faithful

        stream = Faithful(translator).translate_stream
    if arguments.memory:
        from regard.faithful import document_translation as filling

        memory = documents.open_memory(arguments, translator)
        together = 1 if is_typed else filling.TOGETHER
        translations = filling.translate_lines(lines, lambda texts: list(stream(texts, **options)), memory, together)
    elif is_typed:  # translates each typed line immediately
        translations = (each for line in lines for each in stream([line], **options))
    else:
        translations = stream(lines, **options)
    if sizes is not None:
        from regard.cli.progress_display import show_sentences

        translations = show_sentences(translations, sizes, _file_size(source))
    if "glossary" in options:
        translations = _report_terms(translations)
    form: dict[str, bool] = {
        "scores": arguments.scores,
        "as_json": arguments.json,
        "several": "alternatives" in options or translator.settings.decoding.alternatives > 0,
    }
    with closing(translations):
        numbered = enumerate(translations, 1)
        rows = (row for number, each in numbered for row in format_translation(each, number=number, **form))
        if arguments.output:
            from regard.atomic_files import write_atomically

            write_atomically(Path(arguments.output), lambda path: write_lines(path, rows))
        else:
            _print_rows(rows, flush=is_typed)


def _report_terms(translations: Generator[Translation]) -> Generator[Translation]:
    """Yields the translations, then reports on standard error the glossary terms that they do not respect."""
    from regard.faithful.glossary import summarize_outcomes

    states, faults = Counter[str](), list[str]()
    with closing(translations):
        for number, each in enumerate(translations, 1):
            states.update(outcome.state for outcome in each.glossary)
            faults += [f"line {number}: {outcome}" for outcome in each.glossary if outcome.state != "placed"]
            del faults[MAX_FAULTS:]
            yield each
    print(*faults, summarize_outcomes(states), sep="\n", file=sys.stderr)


def _print_rows(rows: Iterable[str], *, flush: bool) -> None:
    count = 0
    try:
        for row in rows:
            print(row, flush=flush)
            count += 1
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped after {count:,} lines") from None


def _file_size(source: BinaryIO) -> int | None:
    with suppress(OSError):
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size or None
    return None
