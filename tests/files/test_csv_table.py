"""Tables with a column for each language: CSV, TSV and JSONL are filled in where they have no translation."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document, format_by_suffix as files
from regard.settings import DataSettings

CSV = '''id,source,target,note\r
1,"Hello, you","Hallo, du",x\r
2,Good night,,"a ""note"""\r
\r
3,"two\r
lines","",
4,last,,'''
LANGUAGES = DataSettings(source="en", target="de")


def opened(folder: Path, content: str | bytes, name: str = "a.csv", source: str = "", target: str = "") -> Document:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return files.open_document(folder / name, source, target)


def pairs(path: Path, data: DataSettings = LANGUAGES, report: Report | None = None) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in files.read(path, data, report or Report())]


# CSV


def test_rows_are_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV.encode())
    assert pairs(path) == [("Hello, you", "Hallo, du"), ("Good night", ""), ("two\nlines", ""), ("last", "")]


@pytest.mark.parametrize("header", ["en,de,fr", "x,DE,en", "en;de;fr", "en\tde\tfr", '"en","de"', "\ufeffen,de"])
def test_columns_are_found_by_their_languages(tmp_path: Path, header: str) -> None:
    delimiter = next(each for each in ";\t," if each in header)
    names = header.strip("\ufeff").replace('"', "").lower().split(delimiter)
    row = delimiter.join({"en": "Hello", "de": "Hallo"}.get(name, "other") for name in names)
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n", encoding="utf-8")
    assert pairs(path) == [("Hello", "Hallo")]
    document = files.open_document(path, "en", "de")
    assert [(unit.source, unit.target, unit.state) for unit in document.units] == [("Hello", "Hallo", "done")]
    assert (document.source_language.lower(), document.target_language.lower()) == ("en", "de")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("Hello there,Hallo du\nBye,Tschüs\n", [("Hello there", "Hallo du"), ("Bye", "Tschüs")]),
        ("Hello,Hallo\nA dog,Ein Hund\n", [("Hello", "Hallo"), ("A dog", "Ein Hund")]),
        ("Hello, you;Hallo, du\nBye;Tschüs\n", [("Hello, you", "Hallo, du"), ("Bye", "Tschüs")]),
        ("Hello, you\tHallo\nBye\tTschüs\n", [("Hello, you", "Hallo"), ("Bye", "Tschüs")]),
        ('\ufeff"Hello, ""you""","Hallo,\nSie"\r\nA dog,\n', [('Hello, "you"', "Hallo,\nSie"), ("A dog", "")]),
    ],
)
def test_two_columns_without_names_are_source_and_target(
    tmp_path: Path, content: str, found: list[tuple[str, str]]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8", newline="")
    report = Report()
    data = DataSettings(source="en", target="de")
    assert [(pair.source, pair.target) for pair in files.read(path, data, report)] == found
    told = "there is no header: the first column is used as source, the second as target"
    assert report.lines()[1:] == [f"{path}: {told}"]
    document = files.open_document(path, "en", "de")
    assert [(unit.source, unit.target) for unit in document.units] == found
    assert document.notes == [told]
    assert document.render({}).decode() == content


@pytest.mark.parametrize(
    "header",
    [
        "English,German",
        "en_text,de_text",
        "id,text",
        "Source text,Translation",
        "key;value",
        "SOURCE_EN,T",
        "a,Größe",
        ",",
    ],
)
def test_a_header_that_is_not_understood_is_no_pair(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\nA dog.,Ein Hund.\n", encoding="utf-8")
    with pytest.raises(DataError, match="the first line of a CSV file must name its columns"):
        list(files.read(path, DataSettings(source="en", target="de"), Report()))


def test_only_fields_that_are_filled_change(tmp_path: Path) -> None:
    document = opened(tmp_path, CSV)
    assert [(unit.source, unit.state, unit.where.line) for unit in document.units] == [
        ("Hello, you", "done", 2),
        ("Good night", "empty", 3),
        ("two\r\nlines", "empty", 6),
        ("last", "empty", 7),
    ]
    assert document.render({}).decode() == CSV
    done = document.render({1: "Gute Nacht", 2: "zwei", 3: 'so "oder", so'}, "de").decode()
    assert done == CSV.replace("night,,", "night,Gute Nacht,").replace('lines",""', 'lines","zwei"').replace(
        "last,,", 'last,"so ""oder"", so",'
    )


def test_undecodable_rows_are_an_error_or_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"en,de\na,\xe9\nb,c\n")
    with pytest.raises(DataError, match=r"a\.csv:2: byte 3 of the line \(0xE9\) is not UTF-8"):
        pairs(path)
    report = Report()
    assert pairs(path, DataSettings(source="en", target="de", undecodable="drop"), report) == [("b", "c")]
    assert (report.read, report.counts) == (2, {"undecodable": 1})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "1: the first line of a CSV file must name its columns"),
        ("a,b,c\n1,2,3\n", "1: the first line of a CSV file must name its columns, two of them"),
        ("en,de\n1,2,3\n", "2: 3 columns, but the first line has 2"),
        ('en,de\n1,"2\n', "2: "),
        ('en,de\n1,"2"3\n', "2: not valid CSV"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        opened(tmp_path, content, "a.csv", "en", "de")
    assert str(caught.value).startswith(f"{tmp_path}/a.csv:{message}")
    with pytest.raises(DataError) as caught:
        pairs(tmp_path / "a.csv")
    assert str(caught.value).startswith(f"{tmp_path}/a.csv:{message}")


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")).map(lambda text: f"a{text}")


@given(rows=st.lists(st.tuples(cells, cells | st.just(""), cells)), text=cells, data=st.data())
def test_a_translation_is_found_again_and_rows_are_those_of_the_csv_module(
    rows: list[tuple[str, str, str]], text: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    file = io.StringIO()
    csv.writer(file, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"]))).writerows([("en", "de", "x"), *rows])
    before = opened(folder, file.getvalue(), "a.csv", "en", "de")
    assert pairs(folder / "a.csv") == [row[:2] for row in rows]
    assert [(unit.source, unit.target) for unit in before.units] == [row[:2] for row in rows]
    assert before.render({}).decode() == file.getvalue()
    if rows:
        i = data.draw(st.integers(0, len(rows) - 1))
        after = list(csv.reader(io.StringIO(before.render({i: text}).decode(), newline="")))[1:]
        assert after == [[row[0], text if k == i else row[1], row[2]] for k, row in enumerate(rows)]


@given(content=st.text(st.sampled_from('ab,;"\r\n\t ')))
def test_anything_opens_or_is_refused(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("csv")
    for name, whole in (("a.csv", f"en,de\n{content}"), ("a.tsv", content)):
        try:
            document = opened(folder, whole, name, "en", "de")
        except DataError:
            continue
        assert document.render({}).decode() == whole


# TSV and JSONL


def test_lines_of_a_tsv_are_units(tmp_path: Path) -> None:
    content = "\ufeffone\teins\r\n\r\ntwo\t\r\nthree\r\n"
    document = opened(tmp_path, content, "a.tsv")
    told = [(unit.source, unit.target, unit.state) for unit in document.units]
    assert told == [("one", "eins", "done"), ("two", "", "empty"), ("three", "", "empty")]
    done = document.render({1: "zw\tei", 2: "drei"}).decode()
    assert done == "\ufeffone\teins\r\n\r\ntwo\tzw ei\r\nthree\tdrei\r\n"


def test_a_tsv_may_name_its_columns(tmp_path: Path) -> None:
    document = opened(tmp_path, "id\ten\tde\n1\tone\t\n", "a.tsv", "en", "de")
    assert document.render({0: "eins"}).decode() == "id\ten\tde\n1\tone\teins\n"
    with pytest.raises(DataError, match=r"a\.tsv:2: 1 columns instead of 3"):
        opened(tmp_path, "id\ten\tde\n1\n", "a.tsv", "en", "de")


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ('{"source": "one", "target": ""}', '{"source": "one", "target": "zwölf"}'),
        ('{ "source":"one" ,"id": 3}', '{ "source":"one", "target": "zwölf" ,"id": 3}'),
        ('{"de": null, "en": "one"}', '{"de": "zwölf", "en": "one"}'),
        ('{"translation": {"en": "one"}}', '{"translation": {"en": "one", "de": "zwölf"}}'),
    ],
)
def test_objects_of_a_jsonl_are_units(tmp_path: Path, line: str, filled: str) -> None:
    document = opened(tmp_path, f"\n{line}\r\n", "a.jsonl", "en", "de")
    assert [(unit.source, unit.state, unit.where.line) for unit in document.units] == [("one", "empty", 2)]
    assert document.render({0: "zwölf"}).decode() == f"\n{filled}\r\n"


@pytest.mark.parametrize("line", ["{}", '{"source": 3}', "[]", '{"source": "a", "target": []}', '{"source": "a"'])
def test_objects_without_texts_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl:1: "):
        opened(tmp_path, line, "a.jsonl", "en", "de")


# Plain text


def test_lines_of_plain_text_are_units(tmp_path: Path) -> None:
    content = "\ufeffOne\r\n\r\n  two \n---\nthree"
    document = opened(tmp_path, content, "a.txt")
    assert [(unit.source, unit.where.line) for unit in document.units] == [("One", 1), ("two", 3), ("three", 5)]
    assert document.render({}).decode() == content
    assert document.render({1: "zwei\n2", 2: "drei"}).decode() == "\ufeffOne\r\n\r\n  zwei 2 \n---\ndrei"
