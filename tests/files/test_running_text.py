"""Running text: nothing visible is lost, documents stay apart, and long ones come in parts that tokens respect."""

from __future__ import annotations

import gzip
import json
import unicodedata
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import running_text as running
from regard.files.formats.running_text import SEPARATOR, DocumentPart, read
from regard.settings import DataSettings, TokenizerSettings
from regard.tokens.tokenizer import Tokenizer

KINDS = ("file", "paragraph", "line")
lines = st.lists(
    st.sampled_from(["", " ", "one", "  two", "three words here", "é\u0301", "four \t", SEPARATOR, "今天"])
)


def parts_of(path: Path, **data: Any) -> tuple[list[DocumentPart], Report]:
    report = Report()
    return list(read([path], DataSettings(**data), report)), report


def texts_of(parts: list[DocumentPart]) -> list[str]:
    """The documents of parts, joined."""
    found: list[str] = []
    for part in parts:
        if part.begins:
            found.append("")
        found[-1] += part.text
    return found


def plainly(rows: list[str], kind: str) -> list[str]:
    """The documents of some lines, the simple way."""
    ends = {"file": lambda row: False, "paragraph": lambda row: not row.strip(), "line": lambda row: True}[kind]
    found: list[str] = []
    held = ""
    for row in rows:
        if row.strip() == SEPARATOR:
            found, held = [*found, held], ""
            continue
        held += row + "\n"
        if ends(row):
            found, held = [*found, held], ""
    return [unicodedata.normalize("NFC", text.strip()) for text in [*found, held] if text.strip()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 5, 100_000])
@given(rows=lines)
def test_documents_equal_those_found_the_simple_way(
    kind: str, size: int, tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\n".join(rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "PART", size)
        parts, report = parts_of(path, documents=kind)
    assert texts_of(parts) == plainly(rows, kind)
    assert all(part.text.strip() for part in parts)
    assert report.read == report.kept == sum(part.begins for part in parts)


@given(rows=st.lists(st.sampled_from(["", "  ", "dog", "a dog  ", " the", "  dogs", "!", "\u0301x", "\t"]), min_size=4))
def test_tokens_of_parts_are_those_of_the_whole(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    """A cut never falls into white space that is one token."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\n".join(rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "PART", 1)
        parts, _ = parts_of(path)
    ids = [TOKENIZER.encode_batch([p.text])[0] if p.begins else TOKENIZER.encode_continuation(p.text) for p in parts]
    assert list(chain(*ids)) == list(chain(*TOKENIZER.encode_batch(texts_of(parts))))


TOKENIZER = Tokenizer.train(["a dog  \n\n  the dogs  \n\t! the\n" * 20], TokenizerSettings(vocabulary=320))


def test_a_long_document_comes_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} of the text\n" for i in range(20_000)))
    parts, report = parts_of(path)
    assert [part.begins for part in parts] == [True, *[False] * (len(parts) - 1)]
    assert len(parts) == 5
    assert all(len(part.text) <= running.PART + 100 for part in parts)
    assert "".join(part.text for part in parts) == path.read_text().strip()
    assert (report.read, report.kept) == (1, 1)


def test_every_file_begins_a_document(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{name} says\nthis")
    found = list(read([tmp_path / "a.txt", tmp_path / "b.txt"], DataSettings(), Report()))
    assert texts_of(found) == ["a.txt says\nthis", "b.txt says\nthis"]
    assert [str(part.where) for part in found] == [f"{tmp_path}/a.txt:1", f"{tmp_path}/b.txt:1"]


def test_the_place_of_a_document_is_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\none\ntwo\n\n\nthree\n")
    parts, _ = parts_of(tmp_path / "a.txt", documents="paragraph")
    assert [(part.text, part.where.line) for part in parts] == [("one\ntwo", 3), ("three", 7)]


def test_gzip_line_ends_and_a_byte_order_mark_make_no_difference(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"one\ntwo"))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": " one\\ntwo "}\n'))
    for name in ("a.txt", "b.txt", "c.txt.gz", "d.jsonl.gz"):
        assert texts_of(parts_of(tmp_path / name)[0]) == ["one\ntwo"], name


def test_jsonl_has_a_document_a_line(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"text": "one\n\ntwo"},
        {"content": "three", "id": 3},
        {"text": 5, "content": "e\u0301"},
        {"text": "  "},
        {"text": "half \ud800"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    parts, report = parts_of(path, documents="line")
    assert texts_of(parts) == ["one\n\ntwo", "three", "é"]
    assert (report.read, report.kept, report.counts) == (5, 3, {"empty": 1, "undecodable": 1})
    assert [place for places in report.examples.values() for place in places] == [f"{path}:4", f"{path}:5"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"texts": "a", "id": 1}', ':2: no text under "text" or "content"; the keys are "texts", "id"'),
        ("{}", ':2: no text under "text" or "content"; the keys are none'),
        ("[1]", ":2: expected a JSON object, not list"),
        ("{", ":2: not JSON: "),
    ],
)
def test_jsonl_without_a_text_is_refused_with_its_place(line: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(DataError) as caught:
        parts_of(path)
    assert str(caught.value).startswith(f"{path}{says}")


def test_what_is_not_utf8_is_refused_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xff\nthree\n")
    with pytest.raises(DataError, match=":2: byte 3 of the line"):
        parts_of(path)
    parts, report = parts_of(path, undecodable="drop")
    assert texts_of(parts) == ["one\nthree"]
    assert report.counts == {"undecodable": 1}


@pytest.mark.parametrize("content", [b"", b"\n \n\t\n", SEPARATOR.encode() + b"\n"])
def test_a_file_without_text_has_no_documents(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert parts_of(tmp_path / "a.txt")[0] == []


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        parts_of(tmp_path / "none.txt")
    (tmp_path / "b.txt").write_bytes(b"a\0b")
    with pytest.raises(DataError, match="binary"):
        parts_of(tmp_path / "b.txt")
