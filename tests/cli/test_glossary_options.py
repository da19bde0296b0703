"""regard translate --glossary: terms are used, and what is not is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import call

TEXT = b"a dog sees me 5.\nthe cat likes us 12.\nshe hears the dogs 7.\n\n"


@pytest.fixture
def terms(tmp_path: Path) -> str:
    path = tmp_path / "terms.csv"
    path.write_text("dog,Baum,Hund\nshe,mich\nus,\n", encoding="utf-8")
    return str(path)


def test_terms_are_used(capsys: pytest.CaptureFixture[str], model: str, terms: str) -> None:
    done = call(capsys, "translate", model, "--glossary", terms, stdin=TEXT)
    assert done.code == 0
    lines = done.out.split("\n")
    assert "Baum" in lines[0]
    assert "Hund" not in lines[0]
    assert "us" in lines[1].replace(".", " ").split()
    assert "Baum" in lines[2]
    assert "mich" in lines[2].lower()
    assert lines[3:] == ["", ""]
    assert done.err == "glossary: 4 terms required, 0 missing; 0 forbidden terms used\n"


def test_json_tells_what_became_of_them(capsys: pytest.CaptureFixture[str], model: str, terms: str) -> None:
    done = call(capsys, "translate", model, "--json", "--glossary", terms, stdin=TEXT)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows[0]["glossary"] == [{"source": "dog", "targets": ["Baum"], "state": "placed", "text": "Baum"}]
    assert [each["source"] for each in rows[2]["glossary"]] == ["she", "dog"]
    assert "glossary" not in rows[3]
    assert "glossary" not in rows[0]["alternatives"]


def test_terms_that_there_is_no_room_for_are_told(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    path = tmp_path / "terms.csv"
    path.write_text("cat," + "sehr lange " * 40 + "Katze\n", encoding="utf-8")
    done = call(capsys, "translate", model, "--glossary", str(path), stdin=b"the cat\n" * 30)
    told = done.err.splitlines()
    assert done.out.count("\n") == 30
    assert len(told) == 21
    assert told[0].startswith("line 1: 'sehr lange")
    assert told[0].endswith("is missing for 'cat'")
    assert told[-1] == "glossary: 30 terms required, 30 missing; 0 forbidden terms used"


def test_what_cannot_be_used_is_refused(capsys: pytest.CaptureFixture[str], model: str, terms: str) -> None:
    done = call(capsys, "translate", model, "--glossary", terms, "--stream", stdin=TEXT)
    assert (done.code, done.out) == (2, "")
    assert "cannot be combined with --glossary" in done.err
    done = call(capsys, "translate", model, "--glossary", terms + "x", stdin=TEXT)
    assert (done.code, done.out) == (2, "")
    assert "terms.csvx: cannot be read (No such file or directory)" in done.err


def test_documents_flag_what_is_missing(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "terms.csv").write_text("cat," + "sehr lange " * 40 + "Katze\ndog,Baum\n", encoding="utf-8")
    (tmp_path / "in.po").write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "the cat"\nmsgstr ""\n\nmsgid "a dog"\nmsgstr ""\n',
        encoding="utf-8",
    )
    arguments = [str(tmp_path / "in.po"), "-o", str(tmp_path / "out.po"), "--glossary", str(tmp_path / "terms.csv")]
    done = call(capsys, "translate", model, *arguments)
    assert done.code == 0
    assert "1 flagged" in done.err
    assert "is missing for 'cat'" in done.err
    assert "Baum" in (tmp_path / "out.po").read_text(encoding="utf-8")
