"""Reads running text from .txt files, whole or split into documents, and from .jsonl files with a document per line."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import json_texts, plain_text as plain
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location

SEPARATOR = "<|endoftext|>"
PART = 100_000
"""Number of characters after which a long document is split, to limit memory."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A document or a part of a document; joined together, the parts are the text of the document."""

    text: str
    begins: bool  # whether this is the first part of a document
    where: Location


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[DocumentPart]:
    """Yields the documents of files in parts, normalized to NFC.

    Documents are split before a line end after a visible character, because no token crosses such a boundary.
    """
    for path in files:
        if suffix(path) not in (".jsonl", ".md"):
            require_plain(path, 'extract its text, or write it under "text" in a .jsonl file')
    for path in files:
        if suffix(path) == ".jsonl":
            yield from _read_objects(path, data, report)
        else:
            yield from _split(_lines(path, data, report), report)


def _lines(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[str | None, Location]]:
    """Yields the lines of a file with their line endings, and None at the end of each document."""
    number = 0
    for number, text in plain.decoded_lines(path, data, report):
        where = Location(str(path), number)
        if text.strip() == SEPARATOR or (data.documents == "paragraph" and not text.strip()):
            yield None, where
            continue
        yield unicodedata.normalize("NFC", text) + "\n", where
        if data.documents == "line":
            yield None, where
    yield None, Location(str(path), number)


def _split(lines: Iterable[tuple[str | None, Location]], report: Report) -> Iterator[DocumentPart]:
    """Yields the parts of documents without surrounding white space; skips blank documents."""
    part: list[str] = []
    size, begins, begin = 0, True, Location("", 0)
    for line, where in lines:
        if line is not None and (line.strip() or part or not begins):
            begin = begin if part else where
            part.append(line)
            size += len(line)
        ends = line is None
        if not ends and not (size > PART and line and line[-2:-1].strip()):
            continue
        text = "".join(part).rstrip() if ends else "".join(part).removesuffix("\n")
        text = text.lstrip() if begins else text
        if text.strip():
            report.read, report.kept = report.read + begins, report.kept + begins
            yield DocumentPart(text, begins, begin)
        part, size, begins = ([], 0, True) if ends else (["\n"], 1, False)


def _read_objects(path: Path, data: DataSettings, report: Report) -> Iterator[DocumentPart]:
    """Yields the document on each line, which is the text under "text" or "content"."""
    for record, where in json_texts.records(path, data, report):
        text = next((record[key] for key in ("text", "content") if isinstance(record.get(key), str)), None)
        if text is None:
            keys = ", ".join(map(json.dumps, list(record)[:10])) or "none"
            raise DataError(f'no text under "text" or "content"; the keys are {keys}', where.path, where.line)
        if SURROGATE.search(text):
            report.drop("undecodable", where)
        elif not text.strip():
            report.drop("empty", where)
        else:
            report.kept += 1
            yield DocumentPart(unicodedata.normalize("NFC", text.strip()), True, where)
