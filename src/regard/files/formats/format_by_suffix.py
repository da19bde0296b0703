"""Finds the format of a file by its suffix."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document, plain_text as plain
from regard.files.language_tags import is_language
from regard.settings import DataSettings
from regard.tokens.text_pairs import Pair

PAIRED = {  # formats with both languages in one file, and the modules that read them
    ".po": "gettext",
    ".pot": "gettext",
    ".mo": "gettext",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".csv": "csv_table",
    ".tsv": "csv_table",
    ".jsonl": "json_texts",
}
ALONE = {  # formats with one language per file; translating such a file writes a copy
    ".srt": "subtitles",
    ".vtt": "subtitles",
    ".json": "json_texts",
    ".arb": "json_texts",
    ".md": "markdown",
}
COMPILED = (".mo",)
FILLABLE = tuple(end for end in (*PAIRED, *ALONE) if end not in COMPILED)
"""Formats into which translations can be written back."""
IN_PLACE = tuple(end for end in FILLABLE if end in PAIRED)
"""Formats that keep the source texts, so that a translated file may replace the original."""
NOT_LINES = (".po", ".pot", ".mo", ".tmx", ".xlf", ".xliff", ".srt", ".vtt")
"""Formats that consist of more than lines of text."""
PLAIN = (".txt", ".text", "")
SIDES = (".src", ".tgt", ".trg", ".source", ".target", ".ref", ".hyp", ".tok")
"""Suffixes of plain files with one side of a corpus, in addition to language codes."""
MARKED = (
    *(".xml", ".html", ".htm", ".xhtml", ".sgm", ".sgml", ".ftl", ".resx", ".properties", ".yml", ".yaml", ".tbx"),
    *(".xcstrings", ".strings", ".stringsdict", ".ttml", ".dita", ".sdlxliff", ".mqxliff", ".idml", ".svg"),
    *(".pdf", ".rtf", ".doc", ".docx", ".odt", ".xls", ".xlsx", ".ods", ".pptx", ".odp", ".epub", ".zip"),
)
"""Formats with markup that Regard does not read."""
READ_ADVICE = f"extract its text, or convert it to a format that Regard reads ({', '.join((*PAIRED, *ALONE))})"


def suffix(path: Path) -> str:
    """Returns the suffix of a file in lower case, without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def has_plain_name(path: Path) -> bool:
    """Returns whether a file name looks like plain text: notes.txt, train.de, newstest.eng_Latn, part.01, README."""
    end = suffix(path)
    last = Path(path.name.removesuffix(".gz")).suffix[1:]
    return end in (*PLAIN, *SIDES) or " " in end or last.isdecimal() or is_language(last)


def require_plain(path: Path, advice: str) -> None:
    """Raises an error if the suffix or the beginning of a file shows that it is not plain text."""
    end = suffix(path)
    if end in (*PAIRED, *ALONE, *MARKED):
        raise DataError(f"{end} is not plain text: {advice}", path)
    if kind := plain.detect_markup(path):
        raise DataError(f"the file looks like {kind}, not like plain text: {advice}", path)


def format_module(path: Path) -> ModuleType | None:
    """Returns the module for the format of a file, or None for plain text."""
    name = {**PAIRED, **ALONE}.get(suffix(path))
    return import_module(f"regard.files.formats.{name}") if name else None


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of a file that contains both languages."""
    module = format_module(path)
    if module is None or suffix(path) in ALONE:
        raise DataError("the file has only one language: pass the file with the other language too", path)
    pairs: Iterator[Pair] = module.read(path, data, report)
    return pairs


def read_two(source: Path, target: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of two files with one language each: units of documents, or lines of plain text."""
    if format_module(source) is None or format_module(source) is not format_module(target):
        for path in (source, target):
            require_plain(path, READ_ADVICE)
        yield from plain.read(source, target, data, report)
        return
    lefts, rights = open_document(source).units, open_document(target).units
    by_context = [{unit.context: unit for unit in units if unit.context} for units in (lefts, rights)]
    if len(by_context[0]) == len(lefts) and len(by_context[1]) == len(rights):
        rights = [by_context[1][context] for context in by_context[0] if context in by_context[1]]
        lefts = [unit for context, unit in by_context[0].items() if context in by_context[1]]
    elif len(lefts) != len(rights):
        raise DataError(
            f"{source} has {len(lefts):,} texts but {target} has {len(rights):,}: pairs would be misaligned; "
            "text n of one must translate text n of the other"
        )
    for left, right in zip(lefts, rights, strict=True):
        report.read += 1
        yield Pair(left.source, right.source, left.where)


def open_document(path: Path | str, source: str = "", target: str = "") -> Document:
    """Opens a file to fill in translations; `source` and `target` choose among several languages in the file."""
    path = Path(path)
    module = plain if suffix(path) in PLAIN else format_module(path)
    if module is None:
        raise DataError("Regard cannot write translations back into this format", path)
    document: Document = module.open_document(path, source, target)
    return document
