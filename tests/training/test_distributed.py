"""Several processes compute what one computes, up to rounding, and none of them continues without the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regard.preparation.train_and_resume import train
from tests.training.corpora import SMALL, write_reversals
from tests.training.together import LOSSES, finish, losses, start
from tests.training.toys import TINY, write_labels, write_text

FEW: dict[str, Any] = {"model.dropout": 0.0, "training.steps": 6, "training.evaluate_every": 3, "training.ema": 0.9}
Curve = list[tuple[float, float]]


def prepare(folder: Path, files: list[Path], **more: Any) -> Path:
    given = {**SMALL, **FEW, **{name.replace("__", "."): value for name, value in more.items()}}
    list(train(files, folder, overrides=given, prepare_only=True))
    return folder


def copied(prepared: Path, folder: Path) -> Path:
    shutil.copytree(prepared, folder)
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepares a run whose updates sum two batches, some with fewer rows than processes."""
    root = tmp_path_factory.mktemp("prepared")
    return prepare(root / "run", write_reversals(root, 40), training__accumulate=2, training__batch_tokens=24)


@pytest.fixture(scope="module")
def alone(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    return losses(copied(prepared, tmp_path_factory.mktemp("alone") / "run"), 1)


def assert_alike(one: Curve, other: Curve, steps: int = 6) -> None:
    assert len(one) == len(other) == steps
    for (loss, norm), (their_loss, their_norm) in zip(one, other, strict=True):
        assert loss == pytest.approx(their_loss, abs=1e-5)
        assert norm == pytest.approx(their_norm, abs=1e-4)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_three_processes_follow_one(kind: str, prepared: Path, alone: Curve, tmp_path: Path) -> None:
    folder = copied(prepared, tmp_path / "run")
    assert_alike(alone, losses(folder, 3, training__parallel=kind))
    parts = {path.name for path in (folder / "training").glob("state-*")}
    names = {f"state-0000000{step}{part}.safetensors" for step in (3, 6) for part in parts_of(kind, 3)}
    assert parts == names


def parts_of(kind: str, size: int) -> list[str]:
    return [""] if kind == "ddp" else [f"-{part}-of-{size}" for part in range(1, size + 1)]


def test_a_state_of_two_processes_continues_with_any_number(prepared: Path, alone: Curve, tmp_path: Path) -> None:
    """Two processes, each with a part of the state, stop after step 3; one and four continue with the same result."""
    folder = copied(prepared, tmp_path / "run")
    finish(start(folder, 2, training__parallel="fsdp", leave=3))
    assert max(path.name for path in (folder / "training").glob("state-*")).startswith("state-00000003")
    for size in (1, 4):
        assert_alike(alone[3:], losses(copied(folder, tmp_path / f"with-{size}"), size), 3)


@pytest.mark.parametrize("task", ["write", "fill", "classify"])
def test_every_task_gives_the_same_losses_in_several_processes(task: str, tmp_path: Path) -> None:
    more = {**TINY, "task": task, "model.pooler": "tanh", "model.next_sentence": task == "fill"}
    if task == "write":
        more |= {"model.pooler": "none", "data.documents": "line"}
    files = [write_labels(tmp_path)] if task == "classify" else [write_text(tmp_path)]
    folder = prepare(tmp_path / "run", files, **(more | {"training.metric": "loss"}))
    one = losses(copied(folder, tmp_path / "one"), 1)
    assert_alike(one, losses(folder, 2, training__parallel="ddp"))


def test_muon_and_bfloat16_are_the_same_in_two_processes(prepared: Path, tmp_path: Path) -> None:
    given = {"training__optimizer": "muon", "training__precision": "bfloat16"}
    one = losses(copied(prepared, tmp_path / "one"), 1, **given)
    two = losses(copied(prepared, tmp_path / "two"), 2, **given)
    assert [loss for loss, _ in one] == pytest.approx([loss for loss, _ in two], abs=2e-2)


def test_muon_computes_each_matrix_in_one_process(prepared: Path, tmp_path: Path) -> None:
    """Three processes compute what one computes; the number of matrices of a shape is not a multiple of three."""
    one = losses(copied(prepared, tmp_path / "one"), 1, training__optimizer="muon")
    three = losses(copied(prepared, tmp_path / "three"), 3, training__optimizer="muon")
    assert [loss for loss, _ in one] == pytest.approx([loss for loss, _ in three], abs=1e-4)


@pytest.mark.parametrize("wrong", [{"optimizer": "muon"}, {"precision": "float16"}])
def test_settings_that_need_whole_matrices_are_refused_with_fsdp(
    wrong: dict[str, str], prepared: Path, tmp_path: Path
) -> None:
    folder = copied(prepared, tmp_path / "run")
    before = (folder / "model.toml").read_bytes()
    given = {f"training__{name}": value for name, value in wrong.items()}
    assert finish(start(folder, 2, training__parallel="fsdp", **given)) == [2, 2]
    message = (folder / "error-0.txt").read_text()
    assert message.startswith("SettingsError: training.")
    assert "ddp" in message or "needs a GPU" in message
    assert (folder / "error-1.txt").read_text().startswith("ReportedElsewhereError")
    assert (folder / "model.toml").read_bytes() == before


def test_a_loss_of_nan_in_one_process_stops_all_and_one_reports_it(prepared: Path, tmp_path: Path) -> None:
    folder = copied(prepared, tmp_path / "run")
    assert finish(start(folder, 2, spoil=4)) == [2, 2]
    assert (folder / "error-0.txt").read_text().startswith(f"ModelError: {folder}: the loss became nan at step 5")
    assert (folder / "error-1.txt").read_text().startswith("ReportedElsewhereError")


def test_a_lost_process_stops_the_others_and_the_run_can_be_resumed(
    prepared: Path, alone: Curve, tmp_path: Path
) -> None:
    folder = copied(prepared, tmp_path / "run")
    assert finish(start(folder, 2, die=4)) == [2, -9]
    message = (folder / "error-0.txt").read_text()
    assert message.startswith("LostProcessError: another process of this run was lost")
    assert "--resume" in message
    assert_alike(alone[3:], losses(folder, 2), 3)


def test_several_processes_leave_a_finished_run_as_it_is(prepared: Path, tmp_path: Path) -> None:
    folder = copied(prepared, tmp_path / "run")
    losses(folder, 2, training__parallel="fsdp")
    (folder / LOSSES).write_text("[]")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert losses(folder, 2) == []
    assert losses(folder, 2, training__steps=4) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
