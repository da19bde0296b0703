"""Reads labelled texts from TSV, CSV or JSONL files, and from files with a word and its label on each line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import csv_table, json_texts, plain_text as plain
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE, tidy
from regard.tokens.text_pairs import Location

LABELS = ("label", "labels", "class", "category", "tag", "tags", "sentiment", "ner_tags")
FIRSTS = ("text", "question", "sentence", "sentence1", "text_a", "premise", "first", "words", "tokens", "word", "token")
SECONDS = ("sentence2", "text_b", "hypothesis", "answer", "second", "text2")
"""Column titles and JSON keys of labels, texts and second texts; earlier ones take precedence."""
LONGEST_LABEL = 200  # maximum length of a label in characters


@dataclass(frozen=True, slots=True)
class Labelled:
    """One or two texts with a label, or words with a label each."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    where: Location


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Labelled]:
    """Yields the labelled texts of files with normalized white space; counts empty and unusable texts as dropped."""
    for path in files:
        for item in _read_file(path, data, report):
            texts, labels = tuple(map(tidy, item.texts)), tuple(map(tidy, item.labels))
            if not texts or not all(texts) or not all(labels):
                report.drop("empty", item.where)
            elif SURROGATE.search("".join((*texts, *labels))):
                report.drop("undecodable", item.where)
            elif sum(map(len, texts)) > data.max_characters * len(texts):
                report.drop("too long", item.where)
            else:
                report.kept += 1
                yield Labelled(texts, labels, item.where)


def _read_file(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    form = suffix(path)
    if form == ".jsonl":
        return _read_objects(path, data, report)
    if data.carrier == "word":
        if form not in (".tsv", ".csv"):
            require_plain(path, "write a word and its label on each line, or use a .jsonl file")
        return _read_words(path, data, report)
    if form in (".tsv", ".csv"):
        return _read_table(path, data, report)
    raise DataError("labelled texts are read from .tsv, .csv or .jsonl files (each may end in .gz)", path)


def _read_table(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """Yields the rows of a table; without a header, the label is the first column."""
    is_tsv = suffix(path) == ".tsv"
    lines = plain.decoded_lines(path, data, report)
    columns, width = list[int](), 0
    for number, row in csv_table.rows(lines, path, "\t" if is_tsv else ",", quoting=not is_tsv):
        if not width:
            columns, width = _columns([name.strip().lower() for name in row]), len(row)
            if columns:
                continue
        if not any(cell.strip() for cell in row):
            continue
        report.read += 1
        if len(row) != width or (width not in (2, 3) and not columns):
            expected = f"{width} columns as in the first line" if columns else "a label and one or two texts"
            raise DataError(f"{len(row)} columns instead of {expected}", path, number)
        label, *texts = [row[i].rstrip("\n") for i in (columns or range(width))]
        if len(label) > LONGEST_LABEL:
            advice = "if the label is not the first column, add a header with the column names label and text"
            raise DataError(f"a label has {len(label)} characters: {advice} (and text_b)", path, number)
        yield Labelled(tuple(texts), (label,), Location(str(path), number))


def _columns(names: Sequence[str]) -> list[int]:
    """Returns the indices of the label and text columns, or an empty list if the names are not those of a header."""
    label = next((names.index(name) for name in LABELS if name in names), None)
    texts = [names.index(name) for name in _text_names(names)]
    if label is None:
        return []
    if not texts:  # only the label has a known name: all other columns are texts
        others = [i for i in range(len(names)) if i != label]
        return [label, *others] if len(others) in (1, 2) else []
    return [label, *texts]


def _text_names(names: Collection[str]) -> list[str]:
    """Returns the name of the text column or key, and of the second text if there is one."""
    first = next((name for name in FIRSTS if name in names), None)
    seconds = (*SECONDS, "sentence") if first == "question" else SECONDS
    second = next((name for name in seconds if name in names), None)
    return [name for name in (first, second if first else None) if name]


def _read_words(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """Yields texts from lines with a word and its label, separated by a tab or spaces; a blank line ends a text."""
    words: list[str] = []
    labels: list[str] = []
    begin = 1
    for number, line in chain(plain.decoded_lines(path, data, report), [(0, "")]):
        if line.strip() and not line.startswith("-DOCSTART-"):
            columns = line.split("\t") if "\t" in line else line.split()
            if len(columns) < 2:
                raise DataError("expected a word and its label, but there is only one column", path, number)
            begin = begin if words else number
            words.append(columns[0])
            labels.append(columns[-1])
        elif words:
            report.read += 1
            yield Labelled(tuple(words), tuple(labels), Location(str(path), begin))
            words, labels = [], []


def _read_objects(path: Path, data: DataSettings, report: Report) -> Iterator[Labelled]:
    """Yields an object per line: text (and text_b) with a label, or tokens with labels."""
    for record, where in json_texts.records(path, data, report):
        label = next((record[name] for name in LABELS if name in record), None)
        first, second = [*(record[name] for name in _text_names(record)), None, None][:2]
        yield _labelled(first, second, label, data, where)


def _labelled(first: Any, second: Any, label: Any, data: DataSettings, where: Location) -> Labelled:
    fault = ""
    if data.carrier == "word":
        words = first.split() if isinstance(first, str) else first
        if isinstance(words, list) and isinstance(label, list) and len(words) == len(label):
            return Labelled(tuple(map(str, words)), tuple(map(_label_text, label)), where)
        fault = 'the object needs "tokens" and "labels", two lists of the same length'
    elif isinstance(first, list) or isinstance(label, list):
        fault = "the object has a list of labels: to label words, use regard train --data.carrier word"
    texts = (first,) if second is None else (first, second)
    if not fault and label is not None and not isinstance(label, dict) and all(isinstance(text, str) for text in texts):
        return Labelled(texts, (_label_text(label),), where)
    names = ", ".join(FIRSTS[:5])
    fault = fault or f'the object needs "text" and "label" (and "text_b" for two texts), or keys such as {names}'
    raise DataError(fault, where.path, where.line)


def _label_text(label: Any) -> str:
    return label if isinstance(label, str) else json.dumps(label)
