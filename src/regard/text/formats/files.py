"""Which format a file has, by how its name ends."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from regard.errors import DataError
from regard.settings import DataSettings
from regard.text.doctor import Report
from regard.text.formats import Document, Pair, plain

PAIRED = {  # formats with both languages in one file, and the module of each
    ".po": "gettext",
    ".pot": "gettext",
    ".mo": "gettext",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".csv": "table",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
}
ALONE = {  # formats with one language in a file: a translated copy takes its place
    ".srt": "subtitles",
    ".vtt": "subtitles",
    ".json": "strings",
    ".arb": "strings",
    ".md": "markdown",
}
PLAIN = (".txt", ".text", "")


def suffix(path: Path) -> str:
    """How a file's name ends, .gz aside."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def module(path: Path) -> ModuleType | None:
    """The module of a file's format; none for plain text."""
    name = {**PAIRED, **ALONE}.get(suffix(path))
    return None if name is None else import_module(f"regard.text.formats.{name}")


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file that has both languages in it."""
    found = module(path)
    if found is None or suffix(path) in ALONE:
        raise DataError("has one language only: give the file of the other beside it", path)
    pairs: Iterator[Pair] = found.read(path, data, report)
    return pairs


def read_two(source: Path, target: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of two files with one language each: line by line, or, where their format has texts, text by text."""
    if suffix(source) not in ALONE or suffix(source) != suffix(target):
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
    found = plain if suffix(path) in PLAIN else module(path)
    if found is None or not hasattr(found, "open_document"):
        raise DataError("is in no format that translations are put back into", path)
    document: Document = found.open_document(path, source, target)
    return document
