"""Cleaning: what is left out is named, counted and placed."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus import clean, leaks, read_pairs
from regard.files.corpus_report import Report, require_kept
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy
from regard.tokens.text_pairs import Location, Pair


def pair(source: str, target: str = "x", line: int = 1, path: str = "train.en") -> Pair:
    return Pair(source, target, Location(path, line))


def cleaned(*pairs: Pair, longest: int = 2000) -> tuple[list[Pair], Report]:
    report = Report(read=len(pairs))
    return list(clean(pairs, DataSettings(max_characters=longest), report)), report


def test_good_pairs_pass_unchanged() -> None:
    good = [pair("one", "eins", 1), pair("a\u2028b c", "今天\u200d", 2)]
    kept, report = cleaned(*good)
    assert kept == good
    assert report == Report(read=2, kept=2)


def test_text_is_composed_stripped_and_without_tabs() -> None:
    kept, report = cleaned(pair(" cafe\u0301\u3000", "\ta\tb\x85\n"))
    assert kept == [pair("café", "a b")]
    assert report.kept == 1


@given(st.text())
def test_tidying_twice_is_tidying_once(text: str) -> None:
    once = tidy(text)
    assert tidy(once) == once
    assert unicodedata.is_normalized("NFC", once)


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("", "x", "empty"),
        ("x", " \u2003\t", "empty"),
        ("", "", "empty"),
        ("a\0b", "x", "control characters"),
        ("x", "a\rb", "control characters"),
        ("a\nb", "x", "control characters"),
        ("a\x7fb", "x", "control characters"),
        ("a\x85b", "x", "control characters"),
        ("a\x9fb", "x", "control characters"),
        ("abcdef", "x", "too long"),
        ("x", "今天天气很好", "too long"),
    ],
)
def test_faults_are_named_counted_and_placed(source: str, target: str, kind: str) -> None:
    kept, report = cleaned(pair("abcde", "e\u0301" * 5, 1), pair(source, target, 2), longest=5)
    assert [p.where.line for p in kept] == [1]
    assert report == Report(read=2, kept=1, counts={kind: 1}, examples={kind: ["train.en:2"]})


@given(st.text(min_size=1))
def test_no_control_character_is_kept(text: str) -> None:
    kept, report = cleaned(pair(text))
    assert len(kept) + sum(report.counts.values()) == 1
    assert all(unicodedata.category(c) != "Cc" for p in kept for c in p.source)


def test_the_report_reads_well() -> None:
    _, report = cleaned(*(pair("", line=n) for n in range(1, 6)), pair("a\0", line=6), *[pair("good")] * 1994)
    assert report.lines() == [
        "2,000 pairs read, 1,994 kept",
        "5 left out: one side or both are empty (train.en:1, train.en:2, train.en:3, ...)",
        "1 left out: control characters in the text (train.en:6)",
    ]


def test_the_report_survives_json() -> None:
    _, report = cleaned(pair(""), pair("a\0"), pair("good"))
    restored = Report(**json.loads(json.dumps(asdict(report))))
    assert restored == report
    assert restored.lines() == report.lines()


def test_a_corpus_without_usable_pairs_is_refused() -> None:
    files = [Path("train.en"), Path("train.de")]
    _, report = cleaned(pair(""), pair("a\0", line=2))
    with pytest.raises(
        DataError, match=r"no usable pairs in train.en and train.de: 1 left out: one side .*:1\); 1 left out: control"
    ):
        require_kept(report, files)
    with pytest.raises(DataError, match=r"no usable pairs in a.tsv: the files are empty"):
        require_kept(Report(), [Path("a.tsv")])
    require_kept(cleaned(pair("good"))[1], files)


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    for side, lines in {"en": "one\n\nthree\nfo\x07ur\n", "de": "eins\nzwei\n \nvier\n"}.items():
        (tmp_path / f"t.{side}").write_text(lines, encoding="utf-8")
    data, report = DataSettings(), Report()
    kept = list(clean(read_pairs([tmp_path / "t.en", tmp_path / "t.de"], data, report), data, report))
    assert [p.source for p in kept] == ["one"]
    assert (report.read, report.kept) == (4, 1)
    path = tmp_path / "t.en"
    assert report.examples == {"empty": [f"{path}:2", f"{path}:3"], "control characters": [f"{path}:4"]}


def test_leaks_are_counted_with_places() -> None:
    train = [pair(s, line=n) for n, s in enumerate(["a", "b", "c", "a", "d"], 1)]
    dev = [pair("x", line=1, path="dev.en"), pair("c", "other", line=2, path="dev.en")]
    test = [pair(s, line=n, path="test.en") for n, s in enumerate(["a", "a", "b", "c", "d", "A"], 1)]
    found = leaks(iter(train), {"dev": iter(dev), "test": iter(test), "none": []})
    assert (found["dev"].pairs, found["dev"].leaked) == (2, 1)
    assert found["dev"].examples == ["dev.en:2 is train.en:3"]
    assert (found["test"].pairs, found["test"].leaked) == (6, 5)
    assert found["test"].examples == ["test.en:1 is train.en:1", "test.en:2 is train.en:1", "test.en:3 is train.en:2"]
    assert (found["none"].pairs, found["none"].leaked, found["none"].examples) == (0, 0, [])
