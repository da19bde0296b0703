"""The training loop saves a run often enough, and not too often."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.preparation.train_and_resume import train
from regard.training import loop
from regard.training.checkpoint import newest_state
from regard.training.events import Progress
from regard.training.loop import must_save
from tests.training.corpora import SMALL, write_reversals


@pytest.mark.parametrize(
    ("elapsed", "upcoming", "save_seconds", "expected"),
    [
        (100, 10, 0.0, False),
        (121, 0, 0.0, True),
        (100, 30, 0.0, True),  # an update or an evaluation of 30 s would end too late
        (121, 0, 1.0, True),
        (121, 0, 2.0, False),  # with a save of 2 s every 121 s, saving would take more than 1 % of the time
        (201, 0, 2.0, True),
    ],
)
def test_a_kill_costs_two_minutes_and_saving_one_percent(
    elapsed: float, upcoming: float, save_seconds: float, expected: bool
) -> None:
    run: Any = SimpleNamespace(saved_at=time.perf_counter() - elapsed, save_seconds=save_seconds)
    assert must_save(run, upcoming) == expected


def test_a_run_is_saved_by_time_before_updates_and_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "MAX_SAVE_SHARE", float("inf"))
    overrides = {**SMALL, "training.steps": 6, "training.evaluate_every": 3}
    saved = []
    for event in train(write_reversals(tmp_path, 60), tmp_path / "run", overrides=overrides):
        if isinstance(event, Progress):
            state = newest_state(tmp_path / "run" / "training")
            saved.append(state and (state.step, len(state.evaluations)))
    assert saved == [None, (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]
