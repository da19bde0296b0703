"""A short run of the program that damages model folders; `make damage` is the long one."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from regard.errors import ModelError
from regard.model_folder import CARD, WEIGHTS
from regard.model_manifest import write_manifest
from tests import damaged_folders
from tests.damaged_folders import CHANGES, DamageReport, confirm, damage, examine, run
from tests.interop.toys import settings_of, write_model


def test_a_damaged_folder_is_refused_or_answers_like_the_undamaged_one() -> None:
    *_, report = run(range(100))
    assert report.faults == []
    assert set(report.outcomes) == {"refused", "same"}
    assert report.outcomes.total() == 100


def test_every_way_to_damage_a_file_changes_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for number in range(200):
        random, content = Random(number), b'{"a": [10, 20],\n "b": "some words"}\n' * 20
        for change in CHANGES:
            change(content, random)
        (tmp_path / "model" / WEIGHTS).write_bytes(content)
        (tmp_path / "model" / CARD).write_bytes(content[1:])
        assert damage(tmp_path / "model", tmp_path / "none", random)
    assert sum(change(content, Random(1)) != content for change in CHANGES) == len(CHANGES)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (lambda: ["other answers"], "wrong"),
        (lambda: 1 / 0, "crash"),
        (lambda: _refuse("two\nlines"), "several lines"),
        (lambda: _refuse("one line"), "refused"),
    ],
)
def test_each_outcome_is_recognised(
    failure: object, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folders" / "model").mkdir(parents=True)
    (tmp_path / "folders" / "model" / CARD).write_text("a card")
    answers = iter([lambda: ["answers"], failure])
    monkeypatch.setattr(damaged_folders, "find_answers", lambda *_, **__: next(answers)())  # type: ignore[operator]
    done, outcome = examine(tmp_path / "folders", 0, {})
    assert (CARD in done, outcome[0]) == (True, expected)
    report = DamageReport()
    report.add(done, outcome)
    assert len(report.faults) == (expected != "refused")


def _refuse(message: str) -> None:
    raise ModelError(message)


@pytest.mark.parametrize(("ending", "expected"), [("exit", "crash"), ("hang", "hang")])
def test_a_process_that_ends_is_reported(ending: str, expected: str) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=end_badly, args=(sender, ending))
    process.start()
    sender.close()
    [(done, outcome)] = damaged_folders.receive(receiver, process)
    assert (done, outcome[0]) == ("7", expected)


def build_one_folder(place: Path) -> None:
    for name, seed in (("fill", 1), ("fill.other", 2)):
        write_manifest(write_model(place / name, settings_of("fill"), seed))


def test_an_interrupted_run_reports_no_faults_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_folders, "build_folders", build_one_folder)
    reports = run(range(1000))
    report = next(reports)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)  # as Ctrl+C does, which reaches all processes of a terminal
    for _ in range(3):
        report = next(reports)
    assert report.faults == []
    reports.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_a_wrong_answer_is_examined_again_and_its_folders_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "folders").mkdir()
    build_one_folder(tmp_path / "folders")
    kind, message, seconds = confirm(tmp_path / "folders", 3, ("wrong", "a instead of b", 0.1))
    assert (kind, seconds) == ("wrong", 0.1)
    (kept,) = tmp_path.glob("damaged-3-*")
    assert re.fullmatch(f"a instead of b; alone: (same|refused); {kept} has the folders", message)
    assert (kept / "folders" / "fill" / WEIGHTS).exists()
    assert (kept / "copy" / "fill").exists()


def end_badly(connection: Connection, ending: str) -> None:
    connection.send(7)
    if ending == "exit":
        os._exit(3)
    signal.setitimer(signal.ITIMER_PROF, 0.05)
    while time.process_time() < 60:
        pass
