"""One file with two columns, source and target, and a tab between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import Document, TranslationState, plain_text as plain
from regard.files.formats.csv_table import columns
from regard.files.formats.replaced_text import Spliced, one_line
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Pair

SEVERAL = "; for more languages, name those of the columns in this line: regard train --directions en-de,de-en"


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file; a blank line is an empty pair, and quotation marks are text."""
    for text, where in plain.texts(path, data, report):
        columns = text.split("\t") if text.strip() else ["", ""]
        if len(columns) != 2:
            hint = SEVERAL if where.line == 1 and len(columns) > 2 else ""
            raise DataError(f"{len(columns)} columns, where source, tab, target are needed{hint}", path, where.line)
        yield Pair(columns[0], columns[1], where)


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each line; a first line that names the columns is none, and a missing last column is added."""
    document = Spliced(path, plain.text(path))
    mark = document.text.startswith("\ufeff")
    header = document.text[mark:].partition("\n")[0].rstrip("\r").split("\t")
    named = columns(header, source, target)
    left, right = named or (0, 1)
    if named and header[left].strip().lower() != "source":
        document.source_language, document.target_language = header[left].strip(), header[right].strip()
    for i, found in enumerate(re.compile(r"[^\n]*\n|[^\n]+").finditer(document.text, mark)):
        line = found[0].removesuffix("\n").removesuffix("\r")
        if (i == 0 and named) or not line.strip():
            continue
        texts = line.split("\t")
        width = len(header) if named else 2
        if len(texts) != width and len(texts) != right == width - 1:
            raise document.fault(f"{len(texts)} columns, where {width} are needed", found.start())
        start = found.start() + sum(len(text) + 1 for text in texts[:right])
        if not texts[left].strip():
            continue
        if len(texts) == right:
            document.add(texts[left], start - 1, start - 1, lambda text: "\t" + _cell(text))
        else:
            text = texts[right]
            state: TranslationState = "done" if text.strip() else "empty"
            document.add(texts[left], start, start + len(text), _cell, target=text, state=state)
    return document


def _cell(text: str) -> str:
    return one_line(text).replace("\t", " ")
