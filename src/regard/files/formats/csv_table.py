"""CSV with a first line that names its columns, or with two columns (RFC 4180; semicolons and tabs too)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import Document, plain_text as plain
from regard.files.formats.replaced_text import Spliced, Write
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.corpus_report import Report
from regard.tokens.language_tags import is_language
from regard.tokens.text_pairs import Location, Pair

DELIMITERS = ",;\t"
SEEN = 100  # lines by which a form is found
UNNAMED = "the first line names no columns: the first column is taken as source, the second as target"
TITLES = (
    "source target src tgt trg text texts string sentence segment original translation translated key id msgid "
    "msgstr context comment note notes term language lang locale reference column english german french spanish "
    "italian portuguese dutch polish czech russian ukrainian chinese japanese korean arabic turkish swedish "
    "danish norwegian finnish greek hungarian romanian hindi hebrew vietnamese indonesian deutsch englisch "
    "französisch spanisch italienisch français anglais allemand español inglés italiano português русский"
)
"""Words that a header may have in it, but hardly the first text of a file together with its translation."""


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file, a row each; a row without a translation is an empty pair."""
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(plain.lines(path), 1):
            text = plain.decode(line, path, number, data, Report())
            yield (line.decode(errors="surrogateescape") if text is None else text) + "\n"

    head = [line.decode(errors="replace") for line in islice(plain.lines(path), SEEN)]
    form = _form(head, data.source, data.target, path)
    names, (left, right) = form.names, form.places
    if not form.has_header:
        report.note(f"{path}: {UNNAMED}")
    rows = csv.reader(lines(), delimiter=form.delimiter, strict=True)
    try:
        for row in islice(rows, int(form.has_header), None):
            if not any(cell.strip() for cell in row):
                continue
            report.read += 1
            if len(row) != len(names):
                raise DataError(f"{len(row)} columns, where the first line has {len(names)}", path, number)
            if SURROGATE.search(row[left] + row[right]):
                report.drop("undecodable", Location(str(path), number))
            else:
                yield Pair(row[left], row[right], Location(str(path), number))
    except csv.Error as error:
        raise DataError(f"not valid CSV ({error})", path, number) from None


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each row; a translation is put into its column."""
    document = Spliced(path, plain.text(path))
    mark = document.text.startswith("\ufeff")
    head = [line.rstrip("\r") for line in document.text[mark:].split("\n", SEEN)[:SEEN]]
    form = _form(head, source, target, path)
    delimiter, names, (left, right) = form.delimiter, form.names, form.places
    if not form.has_header:
        document.notes.append(UNNAMED)
    elif _name(names[left]) != "source":
        document.source_language, document.target_language = names[left], names[right]
    for row in islice(_rows(document, delimiter, mark), int(form.has_header), None):
        texts = [text for _, _, text in row]
        if not any(text.strip() for text in texts):
            continue
        if len(row) != len(names):
            raise document.fault(f"{len(row)} columns, where the first line has {len(names)}", row[0][0])
        start, end, text = row[right]
        if texts[left].strip():
            quote = document.text[start:end].startswith('"')
            write = _writer(delimiter, quote)
            document.add(texts[left], start, end, write, target=text, state="done" if text.strip() else "empty")
    return document


def columns(names: Sequence[str], source: str, target: str) -> tuple[int, int] | None:
    """Which columns have the two texts: those called like the languages or source and target, or the only two."""
    told = [_name(name) for name in names]
    for left, right in ((_name(source), _name(target)), ("source", "target")):
        if left and right and left != right and told.count(left) == told.count(right) == 1:
            return told.index(left), told.index(right)
    unknown = {source, target} <= {"", "source", "target"}
    return (0, 1) if unknown and len(told) == 2 and all(map(is_language, told)) and told[0] != told[1] else None


def _name(name: str) -> str:
    return name.strip().lower().replace("-", "_")


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a file is to be read."""

    delimiter: str
    names: list[str]  # of the columns
    places: tuple[int, int]  # of the source and the target among them
    has_header: bool = True


def _form(head: Sequence[str], source: str, target: str, path: Path) -> TableFormat:
    """The form of a file by its first lines: its header, or else two columns of texts."""
    line = head[0] if head else ""
    for delimiter in DELIMITERS:
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # such as a carriage return
            break
        found = columns(names, source, target)
        if found is not None:
            return TableFormat(delimiter, [name.strip() for name in names], found)
    for delimiter in reversed(DELIMITERS):  # there are commas in texts
        if _has_two_texts(head, delimiter):
            return TableFormat(delimiter, ["source", "target"], (0, 1), has_header=False)
    wanted = f" or {source} and {target}" if {source, target} - {"", "source", "target"} else ""
    raise DataError(
        f"the first line of a CSV has to name its columns, two of them source and target{wanted} (say which, as "
        f"in regard train --source NAME --target NAME); not {line[:60]!r}",
        path,
        1,
    )


def _has_two_texts(head: Sequence[str], delimiter: str) -> bool:
    """Whether some lines have two columns, of which the first line is a text and not the name in each."""
    try:
        rows = [row for row in csv.reader((f"{line}\n" for line in head), delimiter=delimiter, strict=True) if row]
    except csv.Error:  # such as a field that goes on below
        rows = [row for row in csv.reader([f"{line}\n" for line in head], delimiter=delimiter) if row][:-1]
    return bool(rows) and {len(row) for row in rows} == {2} and not any(map(_is_title, rows[0]))


def _is_title(cell: str) -> bool:
    """Whether a cell may be the name of a column: empty, an identifier, or a word that stands in headers."""
    words = re.findall(r"\w+", cell.lower())
    named = len(words) <= 3 and not set(words).isdisjoint(TITLES.split())
    return not words or named or re.fullmatch(r"[a-z][\w.:-]*|[A-Z_]+", cell.strip()) is not None


def _rows(document: Spliced, delimiter: str, at: int) -> Iterator[list[tuple[int, int, str]]]:
    """The fields of each row: where they begin and end, quotation marks included, and what they say."""
    text = document.text
    quoted = re.compile(r'"([^"]*(?:""[^"]*)*)"')
    unquoted = re.compile(rf"([^{delimiter}\r\n]*)")
    line_end = re.compile(r"\r?\n|\Z")
    row: list[tuple[int, int, str]] = []
    while at < len(text) or row:
        found = (quoted if text.startswith('"', at) else unquoted).match(text, at)
        if found is None:
            raise document.fault("a field without its closing quotation mark", at)
        row.append((at, found.end(), found[1].replace('""', '"') if text.startswith('"', at) else found[1]))
        at = found.end()
        if text.startswith(delimiter, at):
            at += 1
            continue
        end = line_end.match(text, at)
        if end is None:
            raise document.fault(f"not valid CSV: {text[at : at + 20]!r} after a field", at)
        yield row
        row, at = [], end.end()


def _writer(delimiter: str, quote: bool) -> Write:
    """What quotes a text if that is needed, or was so before."""

    def write(text: str) -> str:
        needed = quote or any(character in text for character in f'{delimiter}"\r\n') or text != text.strip()
        return '"' + text.replace('"', '""') + '"' if needed else text

    return write
