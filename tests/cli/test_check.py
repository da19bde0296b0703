"""regard check: the table, JSON, the cleaned corpus, and what it refuses."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from regard.cli.check import shorten
from regard.files.pair_checks import CHECKS
from tests.cli.running import call, process

PAIRS = [
    ("one tree", "ein Baum"),
    ("two trees in 1999", "zwei Bäume im Jahr 1989"),
    ("one tree", "ein Baum"),
    ("", "leer"),
    ("for you", "fÃ¼r dich"),
    ("  a\u0308pple ", "Apfel"),
]
PASSING = [PAIRS[0], PAIRS[1], ("äpple", "Apfel")]


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    return [str(path) for path in paths]


def test_the_table(capsys: pytest.CaptureFixture[str], corpus: list[str]) -> None:
    done = call(capsys, "check", *corpus)
    assert (done.code, done.err) == (0, "")
    assert f"6 pairs in {corpus[0]}, {corpus[1]}" in done.out
    assert "error   duplicate               1   16.67%   repeats an earlier pair" in done.out
    assert f"        {corpus[0]}:3\n            one tree  →  ein Baum\n" in done.out
    assert f"        {corpus[0]}:2  (1999 only in the source; 1989 only in the target)\n" in done.out
    assert "warning numbers                 1   16.67%   numbers differ" in done.out
    assert "Nothing found: undecodable, control, " in done.out
    assert "The languages were not checked" in done.out
    assert "3 pairs have no error; --fix -o clean.tsv writes these and drops 3." in done.out


def test_json(capsys: pytest.CaptureFixture[str], corpus: list[str]) -> None:
    done = call(capsys, "check", *corpus, "--json")
    found = json.loads(done.out)
    assert (done.code, found["pairs"], found["passing"], found["files"]) == (0, 6, 3, corpus)
    assert found["checks"].keys() == CHECKS.keys()
    assert {name for name, check in found["checks"].items() if check["count"]} == {
        *("duplicate", "empty", "damaged", "numbers")
    }
    duplicate = found["checks"]["duplicate"]
    assert duplicate["examples"] == [{"where": f"{corpus[0]}:3", "source": "one tree", "target": "ein Baum"}]
    assert (duplicate["count"], duplicate["severity"]) == (1, "error")
    assert found["checks"]["numbers"]["severity"] == "warning"


@pytest.mark.parametrize("name", ["clean.tsv", "clean.tsv.gz"])
def test_fix_writes_the_pairs_that_pass(
    capsys: pytest.CaptureFixture[str], corpus: list[str], tmp_path: Path, name: str
) -> None:
    output = tmp_path / "new" / name
    done = call(capsys, "check", *corpus, "--fix", "-o", str(output))
    assert done.code == 0
    assert f"{output}: 3 pairs written, 3 dropped (damaged 1, empty 1, duplicate 1)." in done.out
    written = gzip.decompress(output.read_bytes()) if name.endswith(".gz") else output.read_bytes()
    assert written.decode() == "".join(f"{source}\t{target}\n" for source, target in PASSING)
    again = call(capsys, "check", str(output), "--strict", "--json")
    assert (again.code, json.loads(again.out)["passing"]) == (0, 3)


def test_checks_are_dropped_and_kept_by_name(
    capsys: pytest.CaptureFixture[str], corpus: list[str], tmp_path: Path
) -> None:
    output = tmp_path / "clean.tsv"
    arguments = ["check", *corpus, "--fix", "-o", str(output), "--drop", "numbers", "--keep", "duplicate,damaged"]
    done = call(capsys, *arguments, "--json")
    assert done.code == 0
    assert output.read_text(encoding="utf-8").count("ein Baum") == 2
    assert "1989" not in output.read_text(encoding="utf-8")
    assert json.loads(done.out)["written"] == str(output)
    assert json.loads(done.out)["checks"]["numbers"]["severity"] == "error"


def test_the_test_set(capsys: pytest.CaptureFixture[str], corpus: list[str], tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("one tree\tBaum\nno tree\tkein Baum\n", encoding="utf-8")
    found = json.loads(call(capsys, "check", *corpus, "--test", str(test), "--json").out)
    assert found["test"] == {"files": [str(test)], "sources": 2, "leaked": 1}
    assert found["checks"]["leaked"]["count"] == 2
    told = call(capsys, "check", *corpus, "--test", str(test)).out
    assert "1 of the 2 sources of the test set are in the corpus." in told


def test_strict(capsys: pytest.CaptureFixture[str], corpus: list[str], tmp_path: Path) -> None:
    assert call(capsys, "check", *corpus, "--strict").code == 1
    clean = tmp_path / "clean.tsv"
    clean.write_text("one tree 1234\tein Baum\n", encoding="utf-8")
    assert call(capsys, "check", str(clean), "--strict").code == 0  # a warning is no error


def test_a_folder_of_catalogues(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    for name, entries in {"a/de.po": [("%s files", "Dateien")], "b/de.po": [("Open", "Öffnen"), ("Save", "")]}.items():
        (tmp_path / name).parent.mkdir()
        text = "".join(f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in entries)
        (tmp_path / name).write_text(header + text, encoding="utf-8")
    found = json.loads(call(capsys, "check", str(tmp_path), "--json").out)
    assert (found["pairs"], found["passing"]) == (2, 2)
    example = {"where": f"{tmp_path}/a/de.po:4", "source": "%s files", "target": "Dateien"}
    assert found["checks"]["placeholders"]["examples"] == [example]


def test_thresholds(capsys: pytest.CaptureFixture[str], corpus: list[str]) -> None:
    found = json.loads(call(capsys, "check", *corpus, "--json", "--data.max_characters", "8", "--check.ratio", "1").out)
    assert found["checks"]["long"]["count"] == 2
    assert found["checks"]["ratio"]["count"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fix"], "must be used together, as in --fix -o clean.tsv"),
        (["-o", "clean.tsv"], "must be used together, as in --fix -o clean.tsv"),
        (["--fix", "-o", "clean.po"], "use the suffix .tsv or .tsv.gz"),
        (["--fix", "-o", "clean.tsv", "--directions", "en-de"], "without --directions"),
        (["--drop", "nubmers"], "unknown check 'nubmers'"),
        (["--keep", "empty"], "--keep empty: training always skips these pairs"),
        (["--check.ratio", "0"], "check.ratio must be at least 1, not 0"),
        (["--check.ration", "2"], "unknown setting --check.ration"),
        (["--test", "missing.tsv"], "missing.tsv: cannot be read"),
        (["--check.confidence", "1"], "check.confidence must be from 0.5 to below 1, not 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], corpus: list[str], arguments: list[str], message: str
) -> None:
    done = call(capsys, "check", *corpus, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_files_that_cannot_be_used_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    longer, shorter = tmp_path / "a.en", tmp_path / "a.de"
    longer.write_text("one\ntwo\n", encoding="utf-8")
    shorter.write_text("eins\n", encoding="utf-8")
    done = call(capsys, "check", str(longer), str(shorter))
    assert done.code == 2
    assert "has 2 lines but" in done.err
    bad = tmp_path / "bad.tsv"
    bad.write_text("\tnothing\n", encoding="utf-8")
    done = call(capsys, "check", str(bad), "--fix", "-o", str(tmp_path / "clean.tsv"))
    assert (done.code, (tmp_path / "clean.tsv").exists()) == (2, False)
    assert "every pair of" in done.err


def test_nothing_but_the_result_is_printed_without_a_terminal(corpus: list[str]) -> None:
    done = process("check", *corpus, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["pairs"] == len(PAIRS)


def test_a_bar_where_somebody_watches(
    capsys: pytest.CaptureFixture[str], corpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    done = call(capsys, "check", *corpus, "--json")
    assert "pairs" in done.err
    assert json.loads(done.out)["pairs"] == len(PAIRS)


def test_shortening() -> None:
    assert shorten("a\u200bb\n", 20) == "a\\u200bb\\n"
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"
