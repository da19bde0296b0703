"""Which format a file has, by how its name ends."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from regard.errors import DataError
from regard.files.formats import Document, plain_text as plain
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.language_tags import is_language
from regard.tokens.text_pairs import Pair

PAIRED = {  # formats with both languages in one file, and the module of each
    ".po": "gettext",
    ".pot": "gettext",
    ".mo": "gettext",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".csv": "csv_table",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
}
ALONE = {  # formats with one language in a file: a translated copy takes its place
    ".srt": "subtitles",
    ".vtt": "subtitles",
    ".json": "json_strings",
    ".arb": "json_strings",
    ".md": "markdown",
}
COMPILED = (".mo",)
FILLABLE = tuple(end for end in (*PAIRED, *ALONE) if end not in COMPILED)
"""Formats that translations are written back into."""
IN_PLACE = tuple(end for end in FILLABLE if end in PAIRED)
"""Those among them that keep the source, so that a translated file may take the place of the old one."""
NOT_LINES = (".po", ".pot", ".mo", ".tmx", ".xlf", ".xliff", ".srt", ".vtt")
"""Formats that lines of text alone do not make."""
PLAIN = (".txt", ".text", "")
SIDES = (".src", ".tgt", ".trg", ".source", ".target", ".ref", ".hyp", ".tok")
"""How files with one side of a corpus are called, beside the codes of languages."""
MARKED = (
    *(".xml", ".html", ".htm", ".xhtml", ".sgm", ".sgml", ".ftl", ".resx", ".properties", ".yml", ".yaml", ".tbx"),
    *(".xcstrings", ".strings", ".stringsdict", ".ttml", ".dita", ".sdlxliff", ".mqxliff", ".idml", ".svg"),
    *(".pdf", ".rtf", ".doc", ".docx", ".odt", ".xls", ".xlsx", ".ods", ".pptx", ".odp", ".epub", ".zip"),
)
"""Formats that have more in them than text and that Regard does not read."""


def suffix(path: Path) -> str:
    """How a file's name ends, .gz aside."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def has_plain_name(path: Path) -> bool:
    """Whether a file is called like plain text: notes.txt, train.de, newstest.eng_Latn, part.01, README."""
    end = suffix(path)
    last = Path(path.name.removesuffix(".gz")).suffix[1:]
    return end in (*PLAIN, *SIDES) or " " in end or last.isdecimal() or is_language(last)


def require_plain(path: Path, advice: str) -> None:
    """Refuses a file that is not plain text, by how its name ends and by how its text begins."""
    end = suffix(path)
    if end in (*PAIRED, *ALONE, *MARKED):
        raise DataError(f"{end} is not plain text: {advice}", path)
    if kind := plain.detect_markup(path):
        raise DataError(f"begins like {kind}, not like plain text: {advice}", path)


def format_module(path: Path) -> ModuleType | None:
    """The module of a file's format; none for plain text."""
    name = {**PAIRED, **ALONE}.get(suffix(path))
    return None if name is None else import_module(f"regard.files.formats.{name}")


READ_ADVICE = f"take its text out of it, or give a format that Regard reads ({', '.join((*PAIRED, *ALONE))})"


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file that has both languages in it."""
    found = format_module(path)
    if found is None or suffix(path) in ALONE:
        raise DataError("has one language only: give the file of the other beside it", path)
    pairs: Iterator[Pair] = found.read(path, data, report)
    return pairs


def read_two(source: Path, target: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of two files with one language each: line by line, or, where their format has texts, text by text."""
    if format_module(source) is None or format_module(source) is not format_module(target):
        for path in (source, target):
            require_plain(path, READ_ADVICE)
        yield from plain.read(source, target, data, report)
        return
    lefts, rights = open_document(source).units, open_document(target).units
    keys = [{unit.context: unit for unit in units if unit.context} for units in (lefts, rights)]
    if len(keys[0]) == len(lefts) and len(keys[1]) == len(rights):
        rights = [keys[1][key] for key in keys[0] if key in keys[1]]
        lefts = [unit for key, unit in keys[0].items() if key in keys[1]]
    elif len(lefts) != len(rights):
        raise DataError(
            f"{source} has {len(lefts):,} texts but {target} has {len(rights):,}: pairs would be misaligned; "
            "text n of the one must translate text n of the other"
        )
    for left, right in zip(lefts, rights, strict=True):
        report.read += 1
        yield Pair(left.source, right.source, left.where)


def open_document(path: Path | str, source: str = "", target: str = "") -> Document:
    """A file as units that can be filled in; the languages are those that are wanted, of a file that has several."""
    path = Path(path)
    found = plain if suffix(path) in PLAIN else format_module(path)
    if found is None or not hasattr(found, "open_document"):
        raise DataError("is in no format that translations are put back into", path)
    document: Document = found.open_document(path, source, target)
    return document
