"""Nothing that a command reads is written over, and an output that cannot be written is refused before any work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli.output_paths import replaces
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Translator
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call, tree
from tests.cli.test_translate_documents import PO

MARKDOWN = "# a dog\n\nthe cat sees me.\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something of everything, which is the current one."""
    write_corpus(tmp_path, "a")
    (tmp_path / "terms.csv").write_text("dog,Hund\n")
    (tmp_path / "memory.tsv").write_text("a dog\tein Hund\n")
    (tmp_path / "app.po").write_text(PO)
    (tmp_path / "read.md").write_text(MARKDOWN)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "read.md").write_text(MARKDOWN)
    (tmp_path / "docs" / "app.po").write_text(PO)
    (tmp_path / "hard").hardlink_to(tmp_path / "a.en")
    (tmp_path / "soft").symlink_to(tmp_path / "a.en")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], place: Path, model: str, line: str) -> str:
    """The one line with which a command is refused that changes nothing, and does not compute."""
    before = tree(place), tree(Path(model))
    words = [word.replace("MODEL", model) for word in line.split()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.decoding.model_loading.load_as", lambda *_, **__: pytest.fail("a model was loaded"))
        done = call(capsys, *words, *(TINY if words[0] == "train" and "--from" not in words else []))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert (tree(place), tree(Path(model))) == before
    return done.err


@pytest.mark.parametrize(
    "line",
    [
        "translate MODEL a.en -o a.en",
        "translate MODEL a.en -o ./docs/../a.en",
        "translate MODEL a.en -o hard",
        "translate MODEL a.en -o soft",
        "translate MODEL soft -o a.en",
        "translate MODEL a.en --cluster local -o a.en",
        "translate MODEL a.en --glossary terms.csv -o terms.csv",
        "translate MODEL a.en --memory memory.tsv -o memory.tsv",
        "translate MODEL a.en -o MODEL/model.toml",
        "translate MODEL a.en -o MODEL/training/model.toml",
        "translate MODEL a.en -o MODEL/history/step-00000000.safetensors",
        "translate MODEL app.po -o MODEL/native/packed.po",
        "embed MODEL a.en -o MODEL/history/new/x.npy",
        "translate MODEL read.md -o read.md",
        "translate MODEL read.md -o .",
        "translate MODEL docs -o docs",
        "translate MODEL read.md docs/read.md -o .",
        "translate MODEL app.po -o read.md --glossary read.md",
        "translate MODEL app.po docs/app.po -o docs",
        "translate MODEL app.po -o x.po --report app.po",
        "translate MODEL app.po -o x.po --memory memory.tsv --report memory.tsv",
        "embed MODEL a.en -o a.en",
        "evaluate MODEL a.en a.de -o a.de",
        "evaluate --hypotheses a.de a.de -o a.de",
        "evaluate MODEL memory.tsv -o memory.tsv",
        "evaluate MODEL a.en a.de --baseline soft -o a.en",
        "check a.en memory.tsv --fix -o memory.tsv",
        "check memory.tsv --fix -o memory.tsv",
        "check *.tsv --fix -o memory.tsv",
        "check app.po --test memory.tsv --fix -o memory.tsv",
        "look MODEL -o MODEL/weights.safetensors --overwrite",
    ],
)
def test_what_is_read_is_not_written_over(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, line: str
) -> None:
    assert "this command reads this file and would overwrite it: specify another file" in refused(
        capsys, place, model, line
    )


def test_a_link_to_a_part_of_a_model_is_that_part(capsys: pytest.CaptureFixture[str], place: Path, model: str) -> None:
    (place / "part").symlink_to(Path(model) / "model.toml")
    (place / "old").symlink_to(Path(model) / "history", target_is_directory=True)
    for line in ("translate MODEL a.en -o part", "translate MODEL a.en -o old/step"):
        assert "this command reads this file and would overwrite it" in refused(capsys, place, model, line)


@pytest.mark.parametrize("name", ["read.md", "docs/read.md"])
def test_formats_that_are_filled_in_their_place_are_named(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, name: str
) -> None:
    listed = refused(capsys, place, model, f"translate MODEL {name} -o {name}").rpartition("(")[2]
    assert ".po, .pot, .tmx, " in listed
    assert ".mo" not in listed  # which nothing is written into


def test_standard_input_is_a_file_too(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (place / "a.en").open() as source:
        monkeypatch.setattr("sys.stdin", source)
        assert replaces(Path("soft"), None)
        assert replaces(Path("soft"), "-")
        assert not replaces(Path("a.de"), None)
        assert not replaces(Path("none"), None)


def test_a_report_and_a_translation_do_not_meet(capsys: pytest.CaptureFixture[str], place: Path, model: str) -> None:
    line = "translate MODEL app.po -o x.po --report ./docs/../x.po"
    assert "is also the output of a translation: specify another file" in refused(capsys, place, model, line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("translate MODEL a.en -o .", ".: is a folder: specify a file"),
        ("translate MODEL a.en -o=", "-o is empty: specify a file"),
        ("translate MODEL app.po -o x.mo", "x.mo: app.po has the format .po: name the output x.po"),
        ("translate MODEL app.po -o x.xlf", "x.xlf: app.po has the format .po: name the output x.po"),
        (
            "translate MODEL read.md -o x.json.gz",
            "x.json.gz: read.md has the format .md: name the output x.md",
        ),
        (
            "translate MODEL a.en -o x.po",
            "x.po: the translations are lines of text, not a .po file: name the output x.txt",
        ),
        (
            "translate MODEL a.en -o x.TMX",
            "x.TMX: the translations are lines of text, not a .tmx file: name the output x.txt",
        ),
        ("translate MODEL a.en --cluster local -o x.po", "x.po: the translations are lines of text, not a .po file"),
        ("translate MODEL a.en -o docs", "docs: is a folder: specify a file"),
        ("translate MODEL a.en -o new/", "new/: is a folder: specify a file"),
        ("translate MODEL a.en -o a.de/x", "a.de/x: cannot be written: "),
        ("translate MODEL a.en --cluster local -o .", ".: is a folder"),
        ("translate MODEL app.po -o a.de/x.po", "a.de/x.po: cannot be written: "),
        ("translate MODEL app.po -o x.po --report docs", "docs: is a folder"),
        ("embed MODEL a.en -o .", ".: is a folder"),
        ("evaluate MODEL a.en a.de -o docs", "docs: is a folder"),
        ("look -o a.de/x.html", "a.de/x.html: cannot be written: "),
        ("quantize MODEL -o a.en", "a.en: is a file; name a folder"),
        ("quantize MODEL -o docs", "is not empty; name another folder"),
        ("quantize MODEL -o docs --overwrite", "holds app.po, which is not part of an export"),
        ("train a.en a.de -o docs", "docs: contains app.po but no model: choose another folder"),
        ("train a.en a.de -o docs --overwrite", "docs: contains app.po but no model: choose another folder"),
        ("train a.en a.de -o .", "a.en and would overwrite it: choose another folder"),
        ("train a.en a.de --from MODEL -o MODEL --overwrite", "and would overwrite it: choose another folder"),
        ("train a.en a.de --dev docs/app.po -o docs", "app.po and would overwrite it: choose another folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, line: str, says: str
) -> None:
    assert says in refused(capsys, place, model, line)


def test_a_folder_without_permission_is_refused(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != place / "docs")
    told = f"docs/new/x.txt: cannot be written: no write permission for {place / 'docs'}"
    assert told in refused(capsys, place, model, "translate MODEL a.en -o docs/new/x.txt")


def test_a_line_that_is_not_utf8_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], place: Path, model: str
) -> None:
    (place / "bad.en").write_bytes(b"a dog\n" * 10_000 + b"caf\xe9\n")
    assert "bad.en:10001: not UTF-8" in refused(capsys, place, model, "translate MODEL bad.en -o x")


def test_documents_are_all_opened_before_the_first_is_translated(
    capsys: pytest.CaptureFixture[str], place: Path, model: str
) -> None:
    (place / "z.po").write_text("no catalogue\n")
    before = tree(place)
    done = call(capsys, "translate", model, "app.po", "z.po", "-o", "x")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "z.po:1: " in done.err
    assert tree(place) == before


@pytest.mark.parametrize(
    "line",
    ["translate MODEL docs -o docs --dry-run", "translate MODEL app.po -o .", "translate MODEL app.po -o app.po"],
)
def test_formats_that_keep_the_source_are_filled_in_their_place(
    capsys: pytest.CaptureFixture[str], place: Path, model: str, line: str
) -> None:
    assert call(capsys, *line.replace("MODEL", model).split()).code == 0


def test_new_folders_are_announced(capsys: pytest.CaptureFixture[str], place: Path, model: str) -> None:
    (place / "few.en").write_text("a dog\n")
    done = call(capsys, "translate", model, "few.en", "-o", "new/dir/x")
    assert (done.code, done.err) == (0, f"regard: created the folder {place / 'new' / 'dir'}\n")
    assert call(capsys, "translate", model, "few.en", "-o", "new/dir/x").err == ""
    done = call(capsys, "quantize", model, "-o", "models/small")
    assert (done.code, done.err) == (0, f"regard: created the folder {place / 'models'}\n")


def test_shards_do_not_replace_what_is_in_their_folder(
    capsys: pytest.CaptureFixture[str], place: Path, model: str
) -> None:
    (place / "x.shards").mkdir()
    (place / "x.shards" / "notes.txt").write_text("mine\n")
    told = "x.shards: contains files that are not shards: move it, or specify another output with -o"
    assert told in refused(capsys, place, model, "translate MODEL a.en --cluster local -o x")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("translate MODEL a.en -o x", "stopped; x is not written"),
        ("translate MODEL a.en -o a.de", "stopped; a.de is unchanged"),
        ("translate MODEL a.en", "stopped after 0 lines"),
        ("translate MODEL app.po docs/app.po -o x", "stopped; 0 of 2 documents have been written"),
        ("embed MODEL a.en -o x.npy", "stopped; x.npy is not written"),
        ("evaluate MODEL a.en a.de", "stopped"),
        ("classify MODEL a.en", "stopped"),
    ],
)
def test_who_interrupts_is_told_what_became_of_the_output(
    capsys: pytest.CaptureFixture[str],
    place: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    says: str,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def stream(*_: object, **__: object) -> Iterator[Translation]:
        interrupt()
        yield from ()

    monkeypatch.setattr(Translator, "translate_stream", stream)
    monkeypatch.setattr(Translator, "translate", interrupt)
    if line.startswith(("embed", "classify")):
        monkeypatch.setattr("regard.decoding.model_loading.load_as", interrupt)
    before = tree(place)
    done = call(capsys, *line.replace("MODEL", model).split())
    assert (done.code, done.out, done.err) == (130, "", f"regard: {says}\n")
    assert tree(place) == before
