"""Lines in, lines out: as many, in order, in every form of output."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.cli.text_lines import read_lines
from regard.decoding.model_loading import load_as
from regard.decoding.translator import WINDOW, Translator
from regard.tokens.protected_pieces import counts
from tests.cli.running import call, process, with_settings

LINES = ["a dog sees me 5.", "", "the cat likes us 12.", "   ", "she hears the café 7."]
TEXT = "".join(line + "\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def translator(trained: tuple[Path, str]) -> Translator:
    return load_as(Translator, trained[0], "cpu")


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    found = [t.text for t in translator.translate(LINES)]
    assert found[1] == found[3] == ""
    assert len({*found[::2]}) == 3  # so that a line out of order would show
    return found


@pytest.mark.parametrize(
    "stdin",
    [
        TEXT,
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.removesuffix(b"\n"),
        b"\xef\xbb\xbf" + TEXT,
    ],
    ids=["plain", "CRLF", "no final newline", "byte-order mark"],
)
def test_every_line_gives_a_line(
    capsys: pytest.CaptureFixture[str], model: str, expected: list[str], stdin: bytes
) -> None:
    done = call(capsys, "translate", model, stdin=stdin)
    assert (done.code, done.err) == (0, "")
    assert done.out == "".join(line + "\n" for line in expected)


def test_lines_are_read_without_their_ends_and_the_byte_order_mark() -> None:
    text = "\ufeffa dog\r\n\r\n\ufeffshe\u2028\rsees \n me"
    assert list(read_lines(io.BytesIO(text.encode()), "x")) == ["a dog", "", "\ufeffshe\u2028\rsees ", " me"]


def test_nothing_gives_nothing(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert call(capsys, "translate", model) == (0, "", "")


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\v", "\f", "\r"])
def test_only_a_line_feed_ends_a_line(capsys: pytest.CaptureFixture[str], model: str, separator: str) -> None:
    done = call(capsys, "translate", model, stdin=f"a dog{separator}sees me.\nshe likes us.\n".encode())
    assert done.code == 0
    assert done.out.count("\n") == 2


def test_a_file_or_a_dash(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, expected: list[str]) -> None:
    (tmp_path / "in.txt").write_bytes(TEXT)
    from_file = call(capsys, "translate", model, str(tmp_path / "in.txt"))
    assert from_file == call(capsys, "translate", model, "-", stdin=TEXT)
    assert from_file.out.split("\n") == [*expected, ""]


def test_into_a_file(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, expected: list[str]) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old")
    assert call(capsys, "translate", model, "-o", str(output), stdin=TEXT) == (0, "", "")
    assert output.read_bytes().decode() == "".join(line + "\n" for line in expected)
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_flags_reach_the_search(capsys: pytest.CaptureFixture[str], model: str, translator: Translator) -> None:
    flags = ["--temperature", "1.5", "--seed", "4", "--top-k", "30", "--max-ratio", "0.5", "--length-penalty", "1"]
    options: dict[str, Any] = {"temperature": 1.5, "seed": 4, "top_k": 30, "max_ratio": 0.5, "length_penalty": 1.0}
    done = call(capsys, "translate", model, *flags, stdin=TEXT)
    assert done.out.split("\n")[:-1] == [t.text.replace("\n", " ") for t in translator.translate(LINES, **options)]


def test_scores_come_before_a_tab(capsys: pytest.CaptureFixture[str], model: str, translator: Translator) -> None:
    done = call(capsys, "translate", model, "--scores", "--beam", "2", stdin=TEXT)
    found = translator.translate(LINES, beam=2)
    assert done.out.split("\n")[:-1] == [f"{t.score:.4f}\t{t.text}" for t in found]


def test_alternatives_are_numbered_by_line(
    capsys: pytest.CaptureFixture[str], model: str, translator: Translator
) -> None:
    done = call(capsys, "translate", model, "--alternatives", "2", stdin=TEXT)
    found = translator.translate(LINES, alternatives=2)
    assert done.out.split("\n")[:-1] == [
        f"{number}\t{each.score:.4f}\t{each.text}" for number, t in enumerate(found, 1) for each in (t, *t.alternatives)
    ]
    rows = [row.split("\t")[0] for row in done.out.split("\n")[:-1]]
    assert {number: rows.count(number) for number in rows} == {"1": 3, "2": 1, "3": 3, "4": 1, "5": 3}


def test_no_alternatives_have_the_same_form(capsys: pytest.CaptureFixture[str], model: str) -> None:
    done = call(capsys, "translate", model, "--alternatives", "0", stdin=b"she\n")
    assert done.out.startswith("1\t-")
    assert done.out.count("\n") == 1


def test_a_model_may_give_alternatives_by_itself(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    copy = with_settings(model, tmp_path, "alternatives = 0", "alternatives = 2")
    asked = call(capsys, "translate", model, "--alternatives", "2", stdin=TEXT)
    assert call(capsys, "translate", copy, stdin=TEXT) == asked


def test_json_says_everything(capsys: pytest.CaptureFixture[str], model: str, translator: Translator) -> None:
    done = call(capsys, "translate", model, "--json", "--alternatives", "1", stdin=TEXT)
    records = [json.loads(line) for line in done.out.split("\n")[:-1]]
    for record, t in zip(records, translator.translate(LINES, alternatives=1), strict=True):
        assert record["text"] == t.text
        assert record["score"] == pytest.approx(t.score, abs=1e-4)
        assert record["tokens"] == list(t.tokens)
        assert record["token_log_probabilities"] == pytest.approx(list(t.token_log_probabilities), abs=1e-4)
        assert record["log_probability"] == pytest.approx(t.log_probability, abs=1e-4)
        assert record["finished"] == t.finished
        assert [other["text"] for other in record["alternatives"]] == [other.text for other in t.alternatives]
        assert all(other["alternatives"] == [] for other in record["alternatives"])


def test_streaming_prints_the_same_as_greedy(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert call(capsys, "translate", model, "--stream", stdin=TEXT) == call(
        capsys, "translate", model, "--beam", "1", stdin=TEXT
    )


def test_protected_text_keeps_its_placeholders(
    capsys: pytest.CaptureFixture[str], model: str, expected: list[str]
) -> None:
    lines = [*LINES, "a dog sees %s and {0}.", "%d%%"]
    done = call(capsys, "translate", model, "--protect", stdin="".join(line + "\n" for line in lines).encode())
    *plain, kept, nothing, end = done.out.split("\n")
    assert [plain[i] for i in (0, 1, 2, 4)] == [expected[i] for i in (0, 1, 2, 4)]
    assert counts(kept) == Counter(["%s", "{0}"])
    assert (nothing, end) == ("%d%%", "")
    done = call(capsys, "translate", model, "--protect", "--json", stdin=b"see %s\n")
    assert counts(json.loads(done.out)["text"]) == Counter(["%s"])


@pytest.mark.parametrize("flags", [["--stream"], ["--alternatives", "2"]])
def test_protected_text_is_checked_as_a_whole(capsys: pytest.CaptureFixture[str], model: str, flags: list[str]) -> None:
    done = call(capsys, "translate", model, "--protect", *flags, stdin=b"see %s\n")
    assert done.code == 2
    assert "--protect" in done.err


@pytest.mark.parametrize("flags", [[], ["--stream"], ["--scores"]], ids=["plain", "stream", "scores"])
def test_a_line_feed_in_a_translation_is_a_space(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """A model spells with bytes too, and one of them is the line feed."""
    monkeypatch.setattr("regard.tokens.tokenizer.Tokenizer.decode", lambda *_: "ein\nHund")
    done = call(capsys, "translate", model, *flags, stdin=b"a dog\nshe\n")
    assert [line.split("\t")[-1] for line in done.out.split("\n")] == ["ein Hund", "ein Hund", ""]


def test_who_types_gets_each_answer_at_once(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []

    class Keyboard(io.BytesIO):
        def __iter__(self) -> Iterator[bytes]:
            for line in (b"a dog sees me.\n", b"she likes us.\n"):
                yield line
                answers.append(capsys.readouterr().out)

        def isatty(self) -> bool:
            return True

    class Terminal:
        buffer = Keyboard()

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert main(["translate", model]) == 0
    assert [answer.count("\n") for answer in answers] == [1, 1]


def test_what_came_before_a_bad_line_is_written(
    capsys: pytest.CaptureFixture[str], model: str, expected: list[str], tmp_path: Path
) -> None:
    bad = TEXT + b"caf\xe9\n" + TEXT
    done = call(capsys, "translate", model, stdin=bad)
    assert (done.code, done.out) == (2, "".join(line + "\n" for line in expected))
    assert done.err.startswith("regard: standard input:6: not UTF-8 (")
    output = tmp_path / "out.txt"
    assert call(capsys, "translate", model, "-o", str(output), stdin=bad) == (2, "", done.err)
    assert not output.exists()


def test_an_interrupt_ends_it_though_a_thread_waits_for_input(model: str) -> None:
    command = [sys.executable, "-m", "regard", "translate", model, "--beam", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"a dog sees me 5.\n" * WINDOW)
        running.stdin.flush()
        assert running.stdout.readline()
        time.sleep(0.5)  # until the lines that are out are counted
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert re.fullmatch(rb"regard: stopped after [1-9][0-9,]* lines\n", running.stderr.read())


class Screen(io.StringIO):
    """A terminal, as far as anybody asks."""

    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Standard error from now on."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


@pytest.mark.parametrize("source", ["file", "pipe"])
def test_who_watches_sees_a_bar(
    capsys: pytest.CaptureFixture[str],
    model: str,
    tmp_path: Path,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    screen = watch(monkeypatch)
    (tmp_path / "in.txt").write_bytes(TEXT)
    arguments = [str(tmp_path / "in.txt")] if source == "file" else []
    done = call(capsys, "translate", model, *arguments, stdin=TEXT if source == "pipe" else b"")
    assert (done.code, done.out) == (0, "".join(line + "\n" for line in expected))
    shown = screen.getvalue()
    assert "translating" in shown
    assert re.search(r"5 sentences, [\d,.]+/s", shown)
    assert ("0:00:00" in shown) == (source == "file")
    assert "\x1b[2K" in shown.splitlines()[-1]  # nothing of it stays


def test_a_bar_goes_away_before_an_error_is_told(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = watch(monkeypatch)
    assert call(capsys, "translate", model, stdin=b"a dog\n\xff\n").code == 2
    shown = screen.getvalue()
    assert shown.endswith("convert it with iconv\n")
    assert "\x1b[?25h" in shown  # the cursor is back


@pytest.mark.parametrize("flags", [[], ["--json"], ["--stream"], ["-o"]], ids=["plain", "json", "stream", "output"])
def test_on_the_terminal_itself_there_is_none(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    screen = watch(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT), encoding="utf-8"))
    into = flags == ["-o"]
    assert main(["translate", model, *flags, *([str(tmp_path / "out.txt")] if into else [])]) == 0
    assert ("translating" in screen.getvalue()) == into


def test_where_nobody_watches_rich_is_not_imported(model: str) -> None:
    program = (
        "import sys; from regard.cli import main; main(['translate', sys.argv[1]]); sys.exit('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, model], input=TEXT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_goes_away_is_no_error(model: str) -> None:
    """regard translate ... | head -1"""
    command = [sys.executable, "-m", "regard", "translate", model, "--json", "--beam", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(b"a dog sees me 5.\n" * 400)  # more JSON than a pipe holds
        running.stdin.close()
        assert json.loads(running.stdout.readline())["text"]
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 0


def test_output_is_utf8_whatever_the_locale(model: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process("translate", model, "--json", stdin="the café\n".encode(), environment=environment)
    assert (done.code, done.err) == (0, "")
    assert "▁" in done.out  # the space of tokens
