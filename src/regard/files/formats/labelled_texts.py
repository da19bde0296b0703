"""Texts with labels: TSV or CSV with a header, JSONL, or a word and its label a line; gzipped or not."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.files.formats import jsonl, plain_text as plain
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE, tidy
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Location

LABELS = ("label", "labels", "class", "category", "tag", "tags", "sentiment", "ner_tags")
FIRSTS = ("text", "question", "sentence", "sentence1", "text_a", "premise", "first", "words", "tokens", "word", "token")
SECONDS = ("sentence2", "text_b", "hypothesis", "answer", "second", "text2")
LONGEST = 200  # characters of a label


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or two, with its label; or words with a label each."""

    texts: tuple[str, ...]  # one or two; or the words
    labels: tuple[str, ...]  # one; or as many as there are words
    where: Location


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Labelled]:
    """The labelled texts of some files; what is empty is left out and counted."""
    for path in files:
        for found in _read_file(path, data, report):
            texts = tuple(map(tidy, found.texts))
            labels = tuple(map(tidy, found.labels))
            if not all(texts) or not all(labels) or not texts:
                report.drop("empty", found.where)
            elif SURROGATE.search("".join((*texts, *labels))):
                report.drop("undecodable", found.where)
            elif sum(map(len, texts)) > data.max_characters * len(texts):
                report.drop("too long", found.where)
            else:
                report.kept += 1
                yield Labelled(texts, labels, found.where)


def _read_file(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    form = suffix(path)
    if form == ".jsonl":
        return _objects(path, data, report)
    if data.carrier == "word":
        if form not in (".tsv", ".csv"):
            require_plain(path, "give a word and its label a line, or a .jsonl")
        return _words(path, data, report)
    if form in (".tsv", ".csv"):
        return _table(path, "\t" if form == ".tsv" else ",", data, report)
    raise DataError("labelled texts are read from .tsv, .csv or .jsonl files (each may end in .gz)", path)


def _lines(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(plain.lines(path), 1):
        text = plain.decode(line, path, number, data, report)
        if text is not None:
            yield number, text


def _table(path: Path, delimiter: str, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """A label and one or two texts a row; a header says which column is which, without one the label is first."""
    number = 0  # of the last line that was read: where a line is left out, the reader of CSV counts too few

    def numbered() -> Iterator[str]:
        nonlocal number
        for number, line in _lines(path, data, report):  # noqa: B007
            yield line + "\n"

    ended = numbered()
    if delimiter == "\t":  # quotation marks are text
        rows = csv.reader(ended, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        rows = csv.reader(ended, delimiter=delimiter, strict=True)
    try:
        first = next(rows, None)
        if first is None:
            return
        columns = _header([name.strip().lower() for name in first])
        width = len(first)
        for row in rows if columns else chain([first], rows):
            where = Location(str(path), number)
            if not any(cell.strip() for cell in row):
                continue
            report.read += 1
            if len(row) != width or (width not in (2, 3) and not columns):
                expected = f"{width} columns as in the first line" if columns else "a label and one or two texts"
                raise DataError(f"{len(row)} columns, where {expected} are needed", path, number)
            label, *texts = [row[i].rstrip("\n") for i in (columns or range(width))]
            if len(label) > LONGEST:
                raise DataError(f"a label of {len(label)} characters: {_ADVICE}", path, number)
            yield Labelled(tuple(texts), (label,), where)
    except csv.Error as error:
        raise DataError(f"not valid CSV ({error})", path, number) from None


_ADVICE = "is the label the first column? If not, name the columns in a first line: label, text (and text_b)"


def _header(names: Sequence[str]) -> list[int]:
    """The places of the label and of the texts; nothing where this is no header."""
    label = next((names.index(name) for name in LABELS if name in names), None)
    texts = [names.index(name) for name in _texts(names)]
    if label is None:
        return []
    if not texts:  # only the label has a known name: what stands beside it is the text
        others = [i for i in range(len(names)) if i != label]
        return [label, *others] if len(others) in (1, 2) else []
    return [label, *texts]


def _texts(names: Iterable[str]) -> list[str]:
    """The names of the one text or the two texts, of those in a header or a record."""
    known = set(names)
    first = next((name for name in FIRSTS if name in known), None)
    seconds = (*SECONDS, "sentence") if first == "question" else SECONDS
    second = next((name for name in seconds if name in known), None)
    return [] if first is None else [first] if second is None else [first, second]


def _words(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """A word, a tab or spaces, and its label a line; a blank line ends a text."""
    words: list[str] = []
    labels: list[str] = []
    begin = 1
    for number, line in chain(_lines(path, data, report), [(0, "")]):
        if line.strip() and not line.startswith("-DOCSTART-"):
            columns = line.split("\t") if "\t" in line else line.split()
            if len(columns) < 2:
                raise DataError("one column, where a word and its label are needed", path, number)
            begin = begin if words else number
            words.append(columns[0])
            labels.append(columns[-1])
        elif words:
            report.read += 1
            yield Labelled(tuple(words), tuple(labels), Location(str(path), begin))
            words, labels = [], []


def _objects(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """An object a line: text (and text_b) with a label, or tokens with labels."""
    for number, line in _lines(path, data, report):
        if not line.strip():
            continue
        report.read += 1
        where = Location(str(path), number)
        record = jsonl.record(line, where)
        label = next((record[name] for name in LABELS if name in record), None)
        first, second = [*(record[name] for name in _texts(record)), None, None][:2]
        yield _labelled(first, second, label, data, where)


def _labelled(first: Any, second: Any, label: Any, data: DataSettings, where: Location) -> Labelled:
    if data.carrier == "word":
        words = first.split() if isinstance(first, str) else first
        if not isinstance(words, list) or not isinstance(label, list) or len(words) != len(label):
            raise DataError('needs "tokens" and "labels", two lists of one length', where.path, where.line)
        return Labelled(tuple(map(str, words)), tuple(map(_name, label)), where)
    if isinstance(first, list) or isinstance(label, list):
        raise DataError(
            "a list of labels: for labels of words, regard train --data.carrier word", where.path, where.line
        )
    texts = (first,) if second is None else (first, second)
    if label is None or isinstance(label, dict) or not all(isinstance(text, str) for text in texts):
        raise DataError(
            f'needs "text" and "label" (and "text_b" for two texts), or names like these: {", ".join(FIRSTS[:5])}',
            where.path,
            where.line,
        )
    return Labelled(tuple(str(text) for text in texts), (_name(label),), where)


def _name(label: Any) -> str:
    return label if isinstance(label, str) else json.dumps(label)
