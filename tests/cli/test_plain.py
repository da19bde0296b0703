"""What is not plain text is never translated, learnt from, scored or embedded as if it were."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call, tree

XML = '<?xml version="1.0"?>\n<resources>\n  <string name="dog">a dog</string>\n</resources>\n'
HTML = "<!DOCTYPE html>\n<html><body><p>a dog</p></body></html>\n"
UNKNOWN = ["xml", "html", "ftl", "resx", "properties", "yml", "xcstrings", "xyz", "mo", "xml.gz"]


@pytest.fixture
def _unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that loads a model: what is refused is refused before."""
    monkeypatch.setattr("regard.decoding.model_loading.load_as", lambda *_, **__: pytest.fail("a model was loaded"))


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize("suffix", UNKNOWN)
@pytest.mark.parametrize("flags", [[], ["--cluster", "local"]])
def test_an_unknown_format_is_refused(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, suffix: str, flags: list[str]
) -> None:
    path = tmp_path / f"strings.{suffix}"
    path.write_bytes(gzip.compress(XML.encode()) if suffix.endswith(".gz") else XML.encode())
    before = tree(tmp_path)
    done = call(capsys, "translate", model, str(path), "-o", str(tmp_path / f"out.{suffix}"), *flags)
    assert (done.code, done.out) == (2, "")
    end = suffix.removesuffix(".gz")
    assert done.err.startswith(f"regard: {path}: .{end} is not a format that Regard knows: Regard fills in .po, .pot,")
    assert done.err.endswith("to translate it line by line as plain text, add --plain\n")
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize("name", ["notes.txt", "notes", "notes.de", "notes.txt.gz", "part.01"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (XML, "XML or HTML"),
        ("\ufeff\n" + HTML, "XML or HTML"),
        ('{\n  "dog": "a dog"\n}\n', "JSON"),
        ('# A comment.\n#\n\nmsgid ""\nmsgstr ""\n', "a PO catalogue"),
        ("1\n00:00:01,000 --> 00:00:02,000\na dog\n", "subtitles"),
    ],
)
def test_markup_in_the_guise_of_text_is_refused(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, name: str, text: str, kind: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    done = call(capsys, "translate", model, str(path))
    assert (done.code, done.out) == (2, "")
    assert f"{path}: the file looks like {kind}, not like plain text" in done.err
    assert "--plain" in done.err


@pytest.mark.parametrize("name", ["a", "a.txt", "a.TXT", "a.en", "a.eng", "a.eng_Latn", "a.pt-BR", "a.src", "a.01"])
def test_plain_names_are_plain(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('<b>a dog</b> sees {"me"}.\n')
    done = call(capsys, "translate", model, str(path))
    assert (done.code, done.out.count("\n")) == (0, 1)


@pytest.mark.parametrize("name", ["strings.xml", "app.po", "notes.txt"])
def test_plain_is_forced(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(XML)
    done = call(capsys, "translate", model, str(path), "--plain")
    assert (done.code, done.out.count("\n")) == (0, XML.count("\n"))
    assert call(capsys, "translate", model, stdin=XML.encode()).out == done.out
    assert "--plain is for one file" in call(capsys, "translate", model, str(path), str(path), "--plain").err


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize(
    "line",
    [
        "embed model a.xml",
        "embed model a.po -o x.npy",
        "embed model markup.txt",
        "classify model a.html",
        "classify model markup.txt",
        "evaluate --hypotheses a.po a.en",
        "evaluate --hypotheses a.en markup.txt",
        "evaluate model a.en markup.txt",
        "train a.en a.xml -o x",
        "train a.en markup.txt -o x",
        "train markup.txt a.en -o x --source de --target en",
        "train a.en markup.de -o x --directions en-de,de-en",
        "train markup.txt --task write -o x",
        "train a.po --task write -o x",
        "train a.html --task fill -o x",
        "train markup.txt --task classify --data.carrier word -o x",
        "train a.en a.de --back-translate markup.txt -o x",
        "train a.en a.de --dev a.xml a.en -o x",
        "check a.en a.xml",
        "check a.en markup.txt",
        "plan a.en markup.txt",
        "plan markup.txt --task write",
    ],
)
def test_no_command_is_deceived_but_it_is_refused(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    write_corpus(tmp_path, "a")
    for name in ("a.xml", "a.html", "a.po", "markup.txt", "markup.de"):
        (tmp_path / name).write_text(XML)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    words = [model if word == "model" else word for word in line.split()]
    done = call(capsys, *words, *(TINY if words[0] == "train" else []))
    assert done.code == 2, done
    assert "plain text" in done.err
    assert done.err.count("\n") == 1
    assert tree(tmp_path) == before


def test_distilling_markup_is_refused(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(XML)
    done = call(capsys, "distill", model, str(tmp_path / "a.xml"), "-o", str(tmp_path / "x"), *TINY)
    assert done.code == 2
    assert "a.xml: .xml is not plain text: use plain text with one sentence per line, or pairs (.po" in done.err


def test_a_pipe_is_left_unread(model: str, tmp_path: Path) -> None:
    from regard.files.formats.plain_text import detect_markup

    os.mkfifo(tmp_path / "pipe")
    assert detect_markup(tmp_path / "pipe") == ""
