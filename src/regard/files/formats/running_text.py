"""Running text: .txt files, whole or in documents, and .jsonl with a document a line; gzipped or not."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import jsonl, plain_text as plain
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Location

SEPARATOR = "<|endoftext|>"
PART = 100_000
"""Characters after which a long document is handed on, so that memory does not grow with it."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A document, or the next part of one: parts of a document joined give its text back."""

    text: str
    begins: bool  # whether a document begins with it
    where: Location


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[DocumentPart]:
    """The documents of some files, in parts; composed characters (NFC).

    The cut is before a line end that follows a visible character: no token lies across it.
    """
    for path in files:
        if suffix(path) not in (".jsonl", ".md"):
            require_plain(path, "take its text out of it, or put it under text in a .jsonl")
    for path in files:
        if suffix(path) == ".jsonl":
            yield from _objects(path, data, report)
        else:
            yield from _parts(_documents(path, data, report), report)


def _documents(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[str | None, Location]]:
    """The lines of a file with their line ends, and none where a document ends."""
    number = 0
    for number, line in enumerate(plain.lines(path), 1):
        where = Location(str(path), number)
        text = plain.decode(line, path, number, data, report)
        if text is None:
            continue
        if text.strip() == SEPARATOR or (data.documents == "paragraph" and not text.strip()):
            yield None, where
            continue
        yield unicodedata.normalize("NFC", text) + "\n", where
        if data.documents == "line":
            yield None, where
    yield None, Location(str(path), number)


def _parts(lines: Iterable[tuple[str | None, Location]], report: Report) -> Iterator[DocumentPart]:
    """Lines joined; a document without a visible character is left out, and so is white space around one."""
    held: list[str] = []
    size, begins, begin = 0, True, Location("", 0)
    for line, where in lines:
        if line is not None and (line.strip() or held or not begins):
            if not held:
                begin = where
            held.append(line)
            size += len(line)
        ends = line is None
        if not ends and not (size > PART and line and line[-2:-1].strip()):
            continue
        text = "".join(held).rstrip() if ends else "".join(held).removesuffix("\n")
        text = text.lstrip() if begins else text
        if text.strip():
            report.read, report.kept = report.read + begins, report.kept + begins
            yield DocumentPart(text, begins, begin)
        held, size = ([], 0) if ends else (["\n"], 1)
        begins = ends if ends else False


def _objects(path: Path, data: DataSettings, report: Report) -> Iterator[DocumentPart]:
    """A document for each line: the text under "text" or "content"."""
    for number, line in enumerate(plain.lines(path), 1):
        where = Location(str(path), number)
        found = plain.decode(line, path, number, data, report)
        if found is None or not found.strip():
            continue
        report.read += 1
        record = jsonl.record(found, where)
        text = next((record[key] for key in ("text", "content") if isinstance(record.get(key), str)), None)
        if text is None:
            keys = ", ".join(map(json.dumps, list(record)[:10])) or "none"
            raise DataError(f'no text under "text" or "content"; the keys are {keys}', path, number)
        if SURROGATE.search(text):
            report.drop("undecodable", where)
        elif not text.strip():
            report.drop("empty", where)
        else:
            report.kept += 1
            yield DocumentPart(unicodedata.normalize("NFC", text.strip()), True, where)
