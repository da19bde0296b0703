"""regard plan: what a training costs, in a table and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call

QUICK = [*TINY, "--seconds", "0.01", "--preset", "tiny"]


def test_the_cost_of_files_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_corpus(tmp_path, pairs=300)
    done = call(capsys, "plan", *files, *QUICK, "--devices", "8")
    assert (done.code, done.err) == (0, "")
    for part in ("Model: tiny, to translate", "parameters", "operations", "tokens/s", "270 pairs on 8 devices", "FSDP"):
        assert part in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.de", "train.en"]


def test_the_cost_of_a_corpus_that_is_not_here_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "plan", "--pairs", "4,000,000", "--tokens", "60_000_000", *QUICK, "--json", "--speed", "10")
    found = json.loads(done.out)
    assert found["preset"] == "tiny"
    assert found["estimate"]["units"] == 4_000_000 - 1000
    assert found["estimate"]["tokens"] == pytest.approx(59_985_000)
    assert found["estimate"]["tokens_per_second"] == pytest.approx(10 * found["measured"]["tokens_per_second"])


def test_text_to_write_is_planned_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("a cat and a dog ran far away.\n" * 400)
    flags = [each for each in QUICK if each not in ("--model.norm", "post")]
    done = call(capsys, "plan", str(tmp_path / "text.txt"), "--task", "write", *flags, "--json")
    assert json.loads(done.out)["estimate"]["units"] == 400 * 30 - 1 - (400 * 30 - 1) // 20


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "pass either the files of the corpus, or its size with --pairs and --tokens"),
        (["x.tsv", "--pairs", "5"], "pass either the files of the corpus, or its size"),
        (["--tokens", "5"], "pass the number of pairs of the corpus"),
        (["--pairs", "0"], "must be a whole number of at least 1, not 0"),
        (["--pairs", "10", "--tokens", "15"], "10 pairs have at least 20 tokens, not 15"),
        (["--pairs", "10", "--efficiency", "2"], "must be a number from 0 to 1, not 2"),
        (["--pairs", "10", "--speed", "fast"], "must be a number of at least 0, not fast"),
        (["--pairs", "10", "--task", "write"], "a corpus for --task write has no pairs"),
        (["--pairs", "10", "--task", "classify"], "supports the tasks translate, write and fill"),
        (["--pairs", "10", "--directions", "en-de,de-en"], "measures one direction"),
        (["--pairs", "10", "--data.directions", "en-de,de-en"], "measures one direction"),
        (["nothing.tsv"], "nothing.tsv"),
        (["--pairs", "10", "--model.widht", "8"], "did you mean --model.width"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "plan", *flags)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert told in done.err


def test_the_languages_that_its_own_error_asks_for_can_be_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n" + "".join(f"one {i},eins {i},un {i}\n" for i in range(200)))
    refused = call(capsys, "plan", str(tmp_path / "t.csv"))
    assert (refused.code, "--source NAME --target NAME" in refused.err) == (2, True)
    flags = ["--source", "a", "--target", "c", "--seconds", "0.01", *TINY, "--json"]
    assert call(capsys, "plan", *flags, str(tmp_path / "t.csv")).err == ""
