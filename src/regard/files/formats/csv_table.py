"""CSV and TSV: tables with a column of sources and a column of targets, which are named in the header or the only two.

CSV follows RFC 4180, with commas, semicolons or tabs as delimiters. In TSV, quotation marks are text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document, plain_text as plain
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.text_replacements import TextDocument, Write, on_one_line
from regard.files.language_tags import is_language
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location, Pair

DELIMITERS = ",;\t"
HEAD = 100  # number of lines from which the delimiter and the columns are inferred
UNNAMED = "there is no header: the first column is used as source, the second as target"
SEVERAL = "; for more languages, name the language of each column in this line: regard train --directions en-de,de-en"
TITLES = (
    "source target src tgt trg text texts string sentence segment original translation translated key id msgid "
    "msgstr context comment note notes term language lang locale reference column english german french spanish "
    "italian portuguese dutch polish czech russian ukrainian chinese japanese korean arabic turkish swedish "
    "danish norwegian finnish greek hungarian romanian hindi hebrew vietnamese indonesian deutsch englisch "
    "französisch spanisch italienisch français anglais allemand español inglés italiano português русский"
)
"""Words that are common in headers, but rare in the first pair of a file."""
Field = tuple[int, int, str]
"""The start and end of a field, including quotation marks, and its text."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The delimiter and the columns of a table."""

    delimiter: str
    names: list[str]  # names of the columns
    places: tuple[int, int]  # indices of the source column and the target column
    has_header: bool = True


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of a file, one per row; a blank row is an empty pair."""
    return _read_tsv(path, data, report) if suffix(path) == ".tsv" else _read_csv(path, data, report)


def _read_tsv(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    for text, where in plain.texts(path, data, report):
        columns = text.split("\t") if text.strip() else ["", ""]
        if len(columns) != 2:
            hint = SEVERAL if where.line == 1 and len(columns) > 2 else ""
            raise DataError(f"{len(columns)} columns instead of two (source, tab, target){hint}", path, where.line)
        yield Pair(columns[0], columns[1], where)


def rows(
    lines: Iterable[tuple[int, str]], path: Path, delimiter: str = ",", *, quoting: bool = True, advice: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Parses the numbered lines of a table; yields each row with the number of its last line.

    Without `quoting`, quotation marks are text.
    """
    number = 0  # number of the last line read; csv.reader does not count skipped lines

    def texts() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007
            yield line + "\n"

    style: Literal[0, 3] = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    try:
        for row in csv.reader(texts(), delimiter=delimiter, quoting=style, strict=True):
            yield number, row
    except csv.Error as error:
        raise DataError(f"not valid CSV ({error}){advice}", path, number) from None


def _read_csv(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    def lines() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(plain.lines(path), 1):
            text = plain.decode(line, path, number, data, Report())
            yield number, line.decode(errors="surrogateescape") if text is None else text

    head = [line.decode(errors="replace") for line in islice(plain.lines(path), HEAD)]
    form = _infer_format(head, data.source, data.target, path)
    left, right = form.places
    if not form.has_header:
        report.note(f"{path}: {UNNAMED}")
    for number, row in islice(rows(lines(), path, form.delimiter), int(form.has_header), None):
        if not any(cell.strip() for cell in row):
            continue
        report.read += 1
        if len(row) != len(form.names):
            raise DataError(f"{len(row)} columns, but the first line has {len(form.names)}", path, number)
        if SURROGATE.search(row[left] + row[right]):
            report.drop("undecodable", Location(str(path), number))
        else:
            yield Pair(row[left], row[right], Location(str(path), number))


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """Opens a table as a document with a unit for each row; translations are written into the target column.

    If a TSV file lacks the last column, it is added.
    """
    document = TextDocument(path, plain.text(path))
    begin = int(document.text.startswith("\ufeff"))
    head = [line.rstrip("\r") for line in document.text[begin:].split("\n", HEAD)[:HEAD]]
    is_tsv = suffix(path) == ".tsv"
    if is_tsv:
        names = [name.strip() for name in head[0].split("\t")]
        places = _find_columns(names, source, target)
        form = TableFormat("\t", names, places) if places else TableFormat("\t", ["", ""], (0, 1), has_header=False)
    else:
        form = _infer_format(head, source, target, path)
    left, right = form.places
    if form.has_header and _normalized(form.names[left]) != "source":
        document.source_language, document.target_language = form.names[left], form.names[right]
    elif not form.has_header and not is_tsv:
        document.notes.append(UNNAMED)
    fields = _tsv_rows(document, begin) if is_tsv else _csv_rows(document, form.delimiter, begin)
    for row in islice(fields, int(form.has_header), None):
        if not any(text.strip() for _, _, text in row):
            continue
        end = row[-1][1]
        if is_tsv and len(row) == right == len(form.names) - 1:
            row.append((end, end, ""))
        if len(row) != len(form.names):
            expected = f" instead of {len(form.names)}" if is_tsv else f", but the first line has {len(form.names)}"
            raise document.fault(f"{len(row)} columns{expected}", row[0][0])
        start, end, text = row[right]
        write = (
            _write_tsv(is_new=start == row[right - 1][1])
            if is_tsv
            else _write_csv(form.delimiter, is_quoted=document.text.startswith('"', start))
        )
        if row[left][2].strip():
            document.add(row[left][2], start, end, write, target=text, state="done" if text.strip() else "empty")
    return document


def _find_columns(names: Sequence[str], source: str, target: str) -> tuple[int, int] | None:
    """Returns the two columns named after the languages or "source" and "target", or the only two with languages."""
    known = [_normalized(name) for name in names]
    for left, right in ((_normalized(source), _normalized(target)), ("source", "target")):
        if left and right and left != right and known.count(left) == known.count(right) == 1:
            return known.index(left), known.index(right)
    is_open = {source, target} <= {"", "source", "target"}
    return (0, 1) if is_open and len(known) == 2 and all(map(is_language, known)) and known[0] != known[1] else None


def _normalized(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _infer_format(head: Sequence[str], source: str, target: str, path: Path) -> TableFormat:
    """Infers the format of a CSV file from its first lines: from the header, or else from two columns of texts."""
    line = head[0] if head else ""
    for delimiter in DELIMITERS:
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # for example because of a carriage return
            break
        if places := _find_columns(names, source, target):
            return TableFormat(delimiter, [name.strip() for name in names], places)
    for delimiter in reversed(DELIMITERS):  # the comma comes last because texts contain commas
        if _has_two_texts(head, delimiter):
            return TableFormat(delimiter, ["source", "target"], (0, 1), has_header=False)
    languages = f" or {source} and {target}" if {source, target} - {"", "source", "target"} else ""
    raise DataError(
        f"the first line of a CSV file must name its columns, two of them source and target{languages} (specify other "
        f"names with regard train --source NAME --target NAME), but is {line[:60]!r}",
        path,
        1,
    )


def _has_two_texts(head: Sequence[str], delimiter: str) -> bool:
    """Returns whether all lines have two columns, and the first line contains texts rather than column titles."""
    lines = [f"{line}\n" for line in head]
    try:
        found = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row]
    except csv.Error:  # for example because a field continues after these lines
        try:
            found = [row for row in csv.reader(lines, delimiter=delimiter) if row][:-1]
        except csv.Error:  # for example because a field is too long
            return False
    return bool(found) and {len(row) for row in found} == {2} and not any(map(_is_title, found[0]))


def _is_title(cell: str) -> bool:
    """Returns whether a cell may be a column title: it is empty, an identifier, or contains a word from `TITLES`."""
    words = re.findall(r"\w+", cell.lower())
    has_title = len(words) <= 3 and not set(words).isdisjoint(TITLES.split())
    return not words or has_title or re.fullmatch(r"[a-z][\w.:-]*|[A-Z_]+", cell.strip()) is not None


def _tsv_rows(document: TextDocument, begin: int) -> Iterator[list[Field]]:
    for match in re.compile(r"[^\n]*\n|[^\n]+").finditer(document.text, begin):
        row, start = [], match.start()
        for text in match[0].removesuffix("\n").removesuffix("\r").split("\t"):
            row.append((start, start + len(text), text))
            start += len(text) + 1
        yield row


def _csv_rows(document: TextDocument, delimiter: str, begin: int) -> Iterator[list[Field]]:
    text, end = document.text, begin
    quoted = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')  # possessive quantifiers, to avoid backtracking
    unquoted = re.compile(rf"([^{delimiter}\r\n]*)")
    line_end = re.compile(r"\r?\n|\Z")
    row: list[Field] = []
    while end < len(text) or row:
        is_quoted = text.startswith('"', end)
        match = (quoted if is_quoted else unquoted).match(text, end)
        if match is None:
            raise document.fault("a field has no closing quotation mark", end)
        row.append((end, match.end(), match[1].replace('""', '"') if is_quoted else match[1]))
        end = match.end()
        if text.startswith(delimiter, end):
            end += 1
            continue
        line = line_end.match(text, end)
        if line is None:
            raise document.fault(f"not valid CSV: {text[end : end + 20]!r} after a field", end)
        yield row
        row, end = [], line.end()


def _write_csv(delimiter: str, *, is_quoted: bool) -> Write:
    """Returns a function that puts a text in quotation marks if necessary, or if `is_quoted`."""

    def write(text: str) -> str:
        needs_quotes = is_quoted or re.search(rf'[{delimiter}"\r\n]', text) or text != text.strip()
        return '"' + text.replace('"', '""') + '"' if needs_quotes else text

    return write


def _write_tsv(*, is_new: bool) -> Write:
    return lambda text: "\t" * is_new + on_one_line(text).replace("\t", " ")
