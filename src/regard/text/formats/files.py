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


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A file as units that can be filled in; the languages are those that are wanted, of a file that has several."""
    found = plain if suffix(path) in PLAIN else module(path)
    if found is None or not hasattr(found, "open_document"):
        raise DataError("is in no format that translations are put back into", path)
    document: Document = found.open_document(path, source, target)
    return document
