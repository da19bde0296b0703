"""regard bench serve: load on a server, with every answer compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.demo import GLASS
from regard.serving.application import create_app
from regard.serving.refusals import BusyError
from tests.cli.running import call
from tests.serving.fakes import FakeModels
from tests.serving.running import running

QUICK = ("--clients", "3", "--seconds", "0.3")


def test_a_model_is_served_and_its_answers_are_the_offline_ones(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "bench", "serve", str(GLASS), "--lines", "20", *QUICK)
    assert done.code == 0, done.out + done.err
    assert done.out.count("0 errors, 0 answers that differ") == 2
    for word in ("offline ", "one client ", "3 clients ", "of offline, ", "p50 ", "p99 "):
        assert word in done.out


def test_the_figures_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "bench", "serve", str(GLASS), "--lines", "20", "--json", *QUICK)
    found = json.loads(done.out)
    assert (done.code, found["one"]["errors"], found["many"]["differ"], found["many"]["who"]) == (0, 0, 0, "3 clients")
    assert found["offline"] > 0
    assert 0 < found["many"]["p50"] <= found["many"]["p99"]


def test_a_server_at_an_address_is_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("one\ntwo\n%s is left out\n\n", encoding="utf-8")
    models = FakeModels("en-de")
    with running(create_app(models)) as address:
        flags = ("--texts", str(tmp_path / "texts"), "--from", "en", "--to", "de", *QUICK)
        done = call(capsys, "bench", "serve", address, *flags)
        assert done.code == 0, done.out + done.err
        assert "times one client" in done.out
        assert "offline" not in done.out
        (queue,) = models.fakes.values()
        assert {text for texts, *_ in queue.calls for text in texts} == {"one", "two"}
        queue.error = BusyError("full")
        full = call(capsys, "bench", "serve", address, *flags)
    assert full.code == 1
    assert "× 429" in full.out


def test_answers_that_differ_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with running(create_app(FakeModels("en-fr"))) as address:
        done = call(capsys, "bench", "serve", address, str(GLASS), "--lines", "5", *QUICK)
    assert done.code == 1
    assert "0 errors, 0 answers that differ" not in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["http://127.0.0.1:1"], "--from and --to"),
        (["https://127.0.0.1:1"], "begins with http://"),
        (["nowhere"], "nowhere: no such folder"),
        ([str(GLASS), "--clients", "0"], "must be a whole number of at least 1"),
        ([str(GLASS), "--texts", "nowhere.txt"], "nowhere.txt"),
        ([str(GLASS), "--to", "zz"], "zz"),
        (["http://127.0.0.1:1", "--from", "de", "--to", "en"], "--texts"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    done = call(capsys, "bench", "serve", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
