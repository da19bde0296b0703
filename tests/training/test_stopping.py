"""Resuming a finished run changes nothing, and a note says how to train it further."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import ModelError, SettingsError
from regard.settings import TrainingSettings
from regard.training.checkpoint import State, state_path
from regard.training.events import Evaluation, Event, Finished, Note, Progress
from regard.training.stopping import reason_to_end
from tests.training.corpora import SMALL, write_reversals
from tests.training.toys import TINY, write_labels, write_text

IN_VAIN = {"training.learning_rate": 0.0, "training.patience": 2, "training.metric": "loss", "training.steps": 500}

RUNS: dict[str, dict[str, Any]] = {
    "translate": SMALL,
    "patience": {**SMALL, **IN_VAIN},
    "history": {**SMALL, "training.history": 4},
    "write": {**TINY, "task": "write"},
    "fill": {**TINY, "task": "fill"},
    "classify": {**TINY, "task": "classify"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains a run of each kind to its end."""
    root = tmp_path_factory.mktemp("runs")
    files: dict[str, list[Path]] = {"write": [write_text(root)], "classify": [write_labels(root)]}
    files["fill"], pairs = files["write"], write_reversals(root, 300)
    for name, overrides in RUNS.items():
        list(regard.train(files.get(name, pairs), root / name, overrides=overrides))
    tuned = {name: value for name, value in SMALL.items() if name.partition(".")[0] not in ("tokenizer", "model")}
    list(regard.train(pairs, root / "tuned", overrides=tuned, start=root / "translate"))
    return root


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Returns the content and the last change of everything in a folder."""
    paths = [folder, *folder.rglob("*")]
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in paths}


def resumed(folder: Path, overrides: Mapping[str, Any] | None = None, **more: Any) -> list[Event]:
    """Resumes a run that must not change; returns the events."""
    before = state_of(folder)
    events = list(regard.resume(folder, overrides=overrides, **more))
    assert state_of(folder) == before
    return events


@pytest.mark.parametrize("name", [*RUNS, "tuned"])
def test_resuming_a_finished_run_changes_no_byte_and_reports_it(name: str, runs: Path) -> None:
    note, finished = resumed(runs / name)
    assert isinstance(note, Note)
    assert isinstance(finished, Finished)
    assert finished.complete
    assert finished.scores["dev"]
    assert note.text.startswith(f"{runs / name}: training is finished: {finished.reason}. Nothing was changed.")
    change = "--training.patience above 2" if name == "patience" else f"--training.steps above {finished.step}, or"
    assert change in note.text
    assert note.text.endswith(f"regard train FILES --from {runs / name}.")


def test_settings_that_leave_nothing_to_do_are_not_recorded(runs: Path) -> None:
    for overrides in ({"training.steps": 24}, {"training.steps": 10}, {"training.average": 1}):
        assert [type(event) for event in resumed(runs / "translate", overrides)] == [Note, Finished]
    assert [type(event) for event in resumed(runs / "patience", {"training.steps": 900})] == [Note, Finished]
    assert isinstance(resumed(runs / "write", prepare_only=True)[-1], Finished)  # as before several processes


def test_settings_that_are_wrong_are_refused_first(runs: Path) -> None:
    with pytest.raises(SettingsError, match=r"model\.width cannot be changed"):
        resumed(runs / "translate", {"model.width": 64})


def test_the_command_in_the_note_continues_training(runs: Path, tmp_path: Path) -> None:
    longer = shutil.copytree(runs / "translate", tmp_path / "translate")
    events = list(regard.resume(longer, overrides={"training.steps": 26}))
    assert [event.step for event in events if isinstance(event, Progress)] == [25, 26]
    assert [type(event) for event in resumed(longer)] == [Note, Finished]
    patient = shutil.copytree(runs / "patience", tmp_path / "patience")
    events = list(regard.resume(patient, overrides={"training.patience": 3}))
    assert sum(isinstance(event, Evaluation) for event in events) == 1
    assert "not improved for 3" in resumed(patient)[-1].reason  # type: ignore[union-attr]


def test_a_run_that_was_killed_before_its_last_line_finishes(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "translate", tmp_path / "run")
    log = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(log[:-20])
    (folder / "card.md").unlink()
    assert isinstance(list(regard.resume(folder))[-1], Finished)
    assert (folder / "card.md").exists()


def test_a_damaged_state_of_a_finished_run_is_not_repaired(runs: Path, tmp_path: Path) -> None:
    """The model is complete without its state."""
    folder = shutil.copytree(runs / "translate", tmp_path / "run")
    path = state_path(folder / "training", 24)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert [type(event) for event in resumed(folder)] == [Note, Finished]


def test_a_model_without_its_training_folder_can_be_started_from(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "translate", tmp_path / "run")
    shutil.rmtree(folder / "training")
    with pytest.raises(ModelError, match=r"no training run to resume: .* regard train FILES --from "):
        resumed(folder)


def test_only_an_unfinished_run_is_said_to_be_resumable(runs: Path, tmp_path: Path) -> None:
    files, folder = write_reversals(tmp_path, 300), tmp_path / "run"
    list(regard.train(files, folder, overrides=SMALL, prepare_only=True))
    with pytest.raises(ModelError, match=r"already contains a model: continue with regard train --resume "):
        list(regard.train(files, folder, overrides=SMALL))
    with pytest.raises(ModelError, match=r"already contains a model: start from it with regard train --from "):
        list(regard.train(files, runs / "translate", overrides=SMALL))


def test_reasons_to_end() -> None:
    training = TrainingSettings(steps=40, patience=2, warmup=10, metric="loss")
    evaluations = [{"step": float(step), "loss": loss} for step, loss in ((10, 2.0), (20, 3.0), (30, 4.0))]
    assert not reason_to_end(training, State(step=20, evaluations=evaluations[:2]))
    assert "not improved for 2" in reason_to_end(training, State(step=30, evaluations=evaluations))
    assert not reason_to_end(training, State(step=10, evaluations=evaluations))  # it has not warmed up
    assert reason_to_end(training, State(step=40)) == "all 40 steps are done"
