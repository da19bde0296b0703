"""Reading pairs: every fault is met with the file and the line, and no line end but the line feed counts."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_report import Report
from regard.settings import DataSettings
from regard.tokens.text_pairs import Location, Pair

DATA = DataSettings(source="en", target="de")
DROP = DataSettings(source="en", target="de", undecodable="drop")


def write(path: Path, content: bytes | str) -> Path:
    blob = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(blob) if path.suffix == ".gz" else blob)
    return path


def two(folder: Path, source: bytes | str, target: bytes | str) -> list[Path]:
    return [write(folder / "train.en", source), write(folder / "train.de", target)]


def texts(files: list[Path], data: DataSettings = DATA) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(files, data, Report())]


def refusal(files: list[Path], data: DataSettings = DATA) -> str:
    with pytest.raises(DataError) as caught:
        list(read_pairs(files, data, Report()))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_plain_files_are_read_line_by_line(tmp_path: Path) -> None:
    files = two(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    report = Report()
    pairs = list(read_pairs(files, DATA, report))
    assert pairs == [
        Pair("one", "eins", Location(str(files[0]), 1)),
        Pair("two", "zwei", Location(str(files[0]), 2)),
    ]
    assert str(pairs[1].where) == f"{files[0]}:2"
    assert (report.read, report.counts) == (2, {})


def test_a_last_line_without_line_end_counts_and_a_final_line_end_adds_none(tmp_path: Path) -> None:
    assert texts(two(tmp_path, "one\ntwo", "eins\nzwei\n")) == [("one", "eins"), ("two", "zwei")]
    assert texts(two(tmp_path, "", "")) == []
    assert texts(two(tmp_path, "\n", "\n")) == [("", "")]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    odd = "a\rb\x85c\u2028d\u2029e\x0bf\x0cg\x1ch"
    assert texts(two(tmp_path, f"{odd}\nx\n", "eins\nzwei\n")) == [(odd, "eins"), ("x", "zwei")]


def test_windows_line_ends_and_byte_order_marks_are_dropped(tmp_path: Path) -> None:
    files = two(tmp_path, "\ufeffone\r\ntwo \r\n", "\ufeffeins\n\ufeffzwei\r\r\n")
    assert texts(files) == [("one", "eins"), ("two ", "\ufeffzwei\r")]


@given(rows=st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))] * 2)))
def test_any_lines_survive_every_form(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("forms")
    expected = [(f"-{source}-", f"-{target}-") for source, target in rows]
    plain = two(folder, *("".join(f"{row[side]}\n" for row in expected) for side in (0, 1)))
    assert texts(plain) == expected
    jsonl = write(folder / "a.jsonl", "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in expected))
    assert texts([jsonl]) == expected
    tabless = [(s.replace("\t", " "), t.replace("\t", " ")) for s, t in expected]
    tsv = write(folder / "a.tsv.gz", "".join(f"{s}\t{t}\n" for s, t in tabless))
    assert texts([tsv]) == tabless


@pytest.mark.parametrize(("longer", "counts"), [("source", ("5", "2")), ("target", ("2", "5"))])
def test_unequal_files_are_refused_with_both_counts(longer: str, counts: tuple[str, str], tmp_path: Path) -> None:
    long, short = "a\n" * 5, "a\nb"
    files = two(tmp_path, long, short) if longer == "source" else two(tmp_path, short, long)
    message = refusal(files)
    assert f"{files[0]} has {counts[0]} lines but {files[1]} has {counts[1]}" in message
    assert "misaligned" in message


def test_a_line_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    files = two(tmp_path, "one\ntwo\n", b"eins\nzw\xf6lf\n")
    message = refusal(files)
    assert message.startswith(f"{files[1]}:2: byte 3 of the line (0xF6) is not UTF-8")
    assert "iconv" in message
    assert "--data.undecodable drop" in message


def test_lines_that_are_not_utf8_can_be_dropped_without_shifting_the_others(tmp_path: Path) -> None:
    files = two(tmp_path, b"one\n\xfftwo\nthree\nfour\n", b"eins\nzwei\ndrei\nvier\xff\n")
    report = Report()
    pairs = list(read_pairs(files, DROP, report))
    assert [(p.source, p.target, p.where.line) for p in pairs] == [("one", "eins", 1), ("three", "drei", 3)]
    assert report.read == 4
    assert report.counts == {"undecodable": 2}
    assert report.examples == {"undecodable": [f"{files[0]}:2", f"{files[1]}:4"]}


def test_binary_files_are_refused(tmp_path: Path) -> None:
    files = two(tmp_path, "one\ntwo\n", b"eins\nz\0ei\n")
    assert refusal(files, DROP).startswith(f"{files[1]}:2: this looks like a binary file")
    utf16 = two(tmp_path, "one\ntwo\n".encode("utf-16"), "eins\nzwei\n")
    message = refusal(utf16)
    assert message.startswith(f"{utf16[0]}:1: this looks like a binary file")
    assert "UTF-16" in message


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    present = write(tmp_path / "train.en", "one\n")
    missing = tmp_path / "nowhere.de"
    assert refusal([present, missing]) == f"{missing}: cannot be read (No such file or directory)"
    assert refusal([tmp_path, present]).startswith(f"{tmp_path}: there is no file with a known format")


def test_gzip_is_read_and_damaged_gzip_is_refused(tmp_path: Path) -> None:
    files = [write(tmp_path / "train.en.gz", "one\n"), write(tmp_path / "train.de.gz", "eins\n")]
    assert texts(files) == [("one", "eins")]
    whole = files[0].read_bytes()
    for damaged in (whole[:-9], b"not gzip at all", whole[:10] + b"\xff" + whole[11:]):
        files[0].write_bytes(damaged)
        assert refusal(files).startswith(f"{files[0]}: cannot be read (")


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    files = two(tmp_path, "some words in a line\n" * 20_000, "einige Wörter in einer Zeile\n" * 20_000)
    tracemalloc.start()
    assert sum(1 for _ in read_pairs(files, DATA, Report())) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize(
    "names", [[], ["a.txt"], ["a.xlsx"], ["a.tsv", "b.xlsx"], ["a.en", "b.jsonl"], ["a", "b", "c"]]
)
def test_other_forms_are_refused_with_the_accepted_ones(names: list[str], tmp_path: Path) -> None:
    message = refusal([tmp_path / name for name in names])
    assert all(word in message for word in ["two plain text files", ".tsv", ".jsonl", ".gz", *names])


def test_tsv_has_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", '\ufeffone\teins\r\n"two"\tzwei\n\n\tdrei')
    assert texts([path]) == [("one", "eins"), ('"two"', "zwei"), ("", ""), ("", "drei")]
    for line, columns in (("one", 1), ("one\teins\tuno", 3)):
        write(path, f"a\tb\n{line}\n")
        assert refusal([path]) == f"{path}:2: {columns} columns instead of two (source, tab, target)"
    write(path, b"a\tb\nc\t\xff\n")
    assert refusal([path]).startswith(f"{path}:2: byte 3 of the line (0xFF)")
    assert texts([path], DROP) == [("a", "b")]


@pytest.mark.parametrize(
    "record",
    [
        {"source": "one", "target": "eins", "id": 3},
        {"en": "one", "de": "eins", "fr": "un"},
        {"translation": {"en": "one", "de": "eins"}},
        {"source": 3, "en": "one", "de": "eins"},
    ],
)
def test_jsonl_is_read_under_three_names(record: object, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", json.dumps(record) + "\r\n\n")
    assert texts([path]) == [("one", "eins"), ("", "")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"en": "one", "fr": "un"}', 'the keys are "en", "fr"'),
        ('{"translation": {"en": "one"}}', 'the keys are "translation", "translation.en"'),
        ('{"translation": "one"}', 'the keys are "translation"'),
        ('{"source": "one", "target": 1}', 'the keys are "source", "target"'),
        ('{"source": null, "target": "eins"}', 'the keys are "source", "target"'),
        ('{"\\n\\ud800": 1}', 'the keys are "\\n\\ud800"'),
        ("{}", "the keys are none"),
        ('["one", "eins"]', "expected a JSON object, not list"),
        ('{"en": "one", ', "not JSON: Expecting property name"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"a": ' + "1" * 5000 + "}", "cannot be read as JSON"),
        ('{"en": "\\ud800", "de": "eins"}', "a lone surrogate"),
    ],
)
def test_jsonl_faults_are_told_with_file_line_and_keys(line: str, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"en": "a", "de": "b"}}\n{line}\n')
    message = refusal([path])
    assert message.startswith(f"{path}:2: ")
    assert complaint in message


def test_lone_surrogates_in_jsonl_are_dropped_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"en": "a", "de": "\\ud83d"}\n{"en": "a", "de": "\\ud83d\\ude00"}\n')
    report = Report()
    assert [pair.target for pair in read_pairs([path], DROP, report)] == ["😀"]
    assert report.examples == {"undecodable": [f"{path}:1"]}
