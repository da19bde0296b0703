"""Labelled texts: every form gives the same, columns are found by name, and what is wrong is told with its place."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats.labelled_texts import Labelled, read
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy

Row = tuple[tuple[str, ...], tuple[str, ...]]  # texts, labels
words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8)
texts = st.lists(words, min_size=1, max_size=4).map(" ".join)
quoted = st.sampled_from(['a "b" c', "one, two", '"', "it's", 'two\nlines "x"', "plain"])


def rows_of(path: Path, **data: Any) -> tuple[list[Row], Report]:
    report = Report()
    found = list(read([path], DataSettings(**data), report))
    return [(each.texts, each.labels) for each in found], report


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


# Forms


@given(rows=st.lists(st.tuples(words, texts, texts), min_size=1), two=st.booleans())
def test_every_form_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], two: bool
) -> None:
    folder = tmp_path_factory.mktemp("labelled")
    names = ["label", "text", "text_b"][: 2 + two]
    short = [row[: 2 + two] for row in rows]
    table = io.StringIO()
    csv.writer(table).writerows([names, *short])
    tabs = "".join("\t".join(row) + "\n" for row in [names, *short])
    objects = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in short)
    paths = [
        write(folder, "a.tsv", tabs),
        write(folder, "b.tsv", tabs.partition("\n")[2]) if rows[0][0] != "label" else write(folder, "b.tsv", tabs),
        write(folder, "c.csv", table.getvalue()),
        write(folder, "d.jsonl", objects),
        write(folder, "e.tsv.gz", tabs),
    ]
    for path in paths:
        found, report = rows_of(path)
        assert found == [(tuple(tidy(t) for t in texts), (tidy(label),)) for label, *texts in short], path.name
        assert (report.read, report.kept) == (len(rows), len(rows))


@given(rows=st.lists(st.tuples(words, quoted), min_size=1))
def test_quoted_cells_of_csv_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    table = io.StringIO()
    csv.writer(table).writerows([("label", "text"), *rows])
    found, _ = rows_of(write(tmp_path_factory.mktemp("csv"), "a.csv", table.getvalue()))
    assert found == [((text,), (tidy(label),)) for label, text in rows]


def test_quotation_marks_are_text_in_tsv(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'label\ttext\nx\t"Well," he said\ny\t"\nx\ta "b\n')
    assert rows_of(path)[0] == [(('"Well," he said',), ("x",)), (('"',), ("y",)), (('a "b',), ("x",))]


@given(rows=st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=4), min_size=1))
def test_words_with_labels(tmp_path_factory: pytest.TempPathFactory, rows: list[list[tuple[str, str]]]) -> None:
    folder = tmp_path_factory.mktemp("words")
    rows = [[(f"w{word}", label) for word, label in row] for row in rows]  # no word is -DOCSTART-
    tabs = "\n\n".join("\n".join("\t".join(pair) for pair in row) for row in rows)
    conll = "-DOCSTART- -X- O O\n\n" + "\n\n".join("\n".join(f"{w} NNP B-NP {x}" for w, x in row) for row in rows)
    objects = "\n".join(json.dumps({"tokens": [w for w, _ in row], "ner_tags": [x for _, x in row]}) for row in rows)
    expected = [(tuple(tidy(w) for w, _ in row), tuple(tidy(x) for _, x in row)) for row in rows]
    for name, text in (("a.txt", tabs), ("b.conll", conll + "\n\n\n"), ("c.jsonl", objects), ("d.tsv.gz", tabs)):
        found, report = rows_of(write(folder, name, text), carrier="word")
        assert found == expected, name
        assert report.read == report.kept == len(rows)


def test_labels_that_are_numbers_or_truths_become_words(tmp_path: Path) -> None:
    labels: list[Any] = [1, 0, True, 2.5, "x"]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps({"text": "t", "label": label}) + "\n" for label in labels))
    assert [labels for _, (labels,) in rows_of(path)[0]] == ["1", "0", "true", "2.5", "x"]
    path = write(tmp_path, "b.jsonl", '{"tokens": ["a", 7], "ner_tags": [0, 3]}\n')
    assert rows_of(path, carrier="word")[0] == [(("a", "7"), ("0", "3"))]


# Columns


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("sentence\tlabel", "good film\t1", (("good film",), ("1",))),
        ("id\tText\tLABEL", "7\tgood\tpos", (("good",), ("pos",))),
        ("premise\thypothesis\tlabel", "a\tb\tyes", (("a", "b"), ("yes",))),
        ("index\tquestion\tsentence\tlabel", "0\twho?\tme\tyes", (("who?", "me"), ("yes",))),
        ("question\tanswer\tlabel", "who?\tme\tyes", (("who?", "me"), ("yes",))),
        ("title\tclass", "a\tb", (("a",), ("b",))),
        ("category\ttitle\tbody", "a\tb\tc", (("b", "c"), ("a",))),
        ("x\ty", "a\tb", (("b",), ("a",))),  # no header: the first line is a text too
    ],
)
def test_the_header_says_which_column_is_which(header: str, row: str, expected: Row, tmp_path: Path) -> None:
    found, _ = rows_of(write(tmp_path, "a.tsv", f"{header}\n{row}\n"))
    assert found[-1] == expected
    assert len(found) == (2 if header == "x\ty" else 1)
    record = dict(zip(header.lower().split("\t"), row.split("\t"), strict=True))
    if "label" in record:
        assert rows_of(write(tmp_path, "a.jsonl", json.dumps(record)))[0] == [expected]


def test_a_header_may_come_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "\ufefflabel,text\r\nx,one\r\n\r\ny,two\r\n")
    assert rows_of(path)[0] == [(("one",), ("x",)), (("two",), ("y",))]


# What is left out


def test_what_is_left_out_is_counted_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"label\ttext\nx\tone\n\t\n\ttwo\nx\t \ny\tth\xffree\ny\t" + b"long" * 9 + b"\ny\tfour\nz\t\n")
    found, report = rows_of(path, undecodable="drop", max_characters=30)
    assert found == [(("one",), ("x",)), (("four",), ("y",))]
    assert report.counts == {"empty": 3, "undecodable": 1, "too long": 1}
    assert report.examples["empty"] == [f"{path}:4", f"{path}:5", f"{path}:9"]
    assert report.examples["too long"] == [f"{path}:7"]


def test_half_characters_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a \\ud800", "label": "x"}\n{"text": "b", "label": "x"}\n')
    found, report = rows_of(path)
    assert found == [(("b",), ("x",))]
    assert report.counts == {"undecodable": 1}


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "\na O\nb O\n\n\nc B-X\n")
    assert [each.where.line for each in read([path], DataSettings(carrier="word"), Report())] == [2, 6]
    path = write(tmp_path, "a.tsv", "x\tone\n\ny\ttwo\n")
    found: list[Labelled] = list(read([path], DataSettings(), Report()))
    assert [each.where.line for each in found] == [1, 3]


# What is wrong


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.txt", "x\tone\n", ": labelled texts are read from .tsv, .csv or .jsonl files"),
        ("a.tsv", "x\tone\ny\n", ":2: 1 columns instead of a label and one or two texts"),
        ("a.tsv", "one\ntwo\n", ":1: 1 columns instead of a label and one or two texts"),
        ("a.tsv", "a\tb\tc\td\n", ":1: 4 columns instead of a label and one or two texts"),
        ("a.tsv", "label\ttext\nx\tone\n\ny\ttwo\tthree\n", ":4: 3 columns instead of 2 columns as in the first line"),
        (
            "a.tsv",
            "a long text " * 20 + "\tx\n",
            ":1: a label has 240 characters: if the label is not the first column",
        ),
        ("a.csv", 'label,text\nx,"one\ntwo\n', ":3: not valid CSV (unexpected end of data)"),
        ("a.csv", 'label,text\nx,"one" two\n', ":2: not valid CSV ("),
        ("a.jsonl", '{"text": "a"}\n', ':1: the object needs "text" and "label"'),
        ("a.jsonl", '{"text": "a", "label": null}\n', ':1: the object needs "text" and "label"'),
        ("a.jsonl", '{"text": "a", "label": {}}\n', ':1: the object needs "text" and "label"'),
        ("a.jsonl", '{"label": "a"}\n', ':1: the object needs "text" and "label"'),
        ("a.jsonl", '{"text": "a", "text_b": 7, "label": "x"}\n', ':1: the object needs "text" and "label"'),
        ("a.jsonl", '\n{"tokens": ["a"], "labels": ["x"]}\n', ":2: the object has a list of labels: to label words"),
        ("a.jsonl", "nothing\n", ":1: not JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(DataError) as caught:
        rows_of(path)
    assert str(caught.value).startswith(f"{path}{says}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.conll", "a O\nb\n", ":2: expected a word and its label, but there is only one column"),
        (
            "a.jsonl",
            '{"tokens": ["a", "b"], "labels": ["x"]}',
            ':1: the object needs "tokens" and "labels", two lists of the same',
        ),
        (
            "a.jsonl",
            '{"tokens": ["a"], "labels": "x"}',
            ':1: the object needs "tokens" and "labels", two lists of the same',
        ),
        ("a.jsonl", '{"labels": ["x"]}', ':1: the object needs "tokens" and "labels", two lists of the same'),
    ],
)
def test_what_is_wrong_with_words_is_told_with_its_place(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(DataError) as caught:
        rows_of(path, carrier="word")
    assert str(caught.value).startswith(f"{path}{says}")
