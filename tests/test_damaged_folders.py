"""A short run of the program that damages model folders; `make damage` is the long one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from regard.errors import ModelError
from regard.model_folder import CARD, WEIGHTS
from tests import damaged_folders
from tests.damaged_folders import CHANGES, DamageReport, damage, examine, run


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


def end_badly(connection: Connection, ending: str) -> None:
    connection.send(7)
    if ending == "exit":
        os._exit(3)
    signal.setitimer(signal.ITIMER_PROF, 0.05)
    while time.process_time() < 60:
        pass
