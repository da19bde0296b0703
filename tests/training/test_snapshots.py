"""Snapshots are kept at the right steps, are the same after resuming, and are the weights of the run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.model_folder import HISTORY, TRAINING, WEIGHTS
from regard.preparation.train_and_resume import resume, train
from regard.training.checkpoint import state_path
from regard.training.events import Progress
from regard.training.validation import history_steps, snapshot_path
from regard.weights import assign, build_model, parameters, read_folder, read_tensors
from tests.training.corpora import SMALL, write_reversals

KEPT = {**SMALL, "training.history": 6}
STEPS = [0, 1, 2, 8, 24]  # 24 steps are too few for six: 0.24 and 0.76 are rounded to 0 and 1


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_reversals(tmp_path_factory.mktemp("corpus"), 300)


@pytest.fixture(scope="module")
def undisturbed(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    list(train(corpus, folder, overrides=KEPT))
    return folder


def history(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / HISTORY).iterdir()}


def stop_at(step: int, **options: Any) -> None:
    stop = threading.Event()
    for event in train(overrides=KEPT, stop=stop, **options):
        if isinstance(event, Progress) and event.step == step:
            stop.set()


def test_moments_begin_close_together_and_include_both_ends() -> None:
    assert history_steps(8, 1800) == [0, 18, 39, 84, 180, 388, 835, 1800]
    assert [history_steps(count, 1000) for count in range(5)] == [
        [],
        [1000],
        [0, 1000],
        [0, 10, 1000],
        [0, 10, 100, 1000],
    ]
    for count, steps in ((5, 1), (5, 3), (50, 20), (200, 100_000)):
        found = history_steps(count, steps)
        assert found == sorted(set(found))
        assert (found[0], found[-1]) == (0, steps)
        assert len(found) <= count


def test_history_is_of_the_run_from_before_its_first_update_to_its_last(undisturbed: Path) -> None:
    assert sorted(history(undisturbed)) == [snapshot_path(Path(), step).name for step in STEPS]
    contents = read_folder(undisturbed)
    torch.manual_seed(contents.settings.training.seed)
    fresh = parameters(build_model(contents.settings, contents.vocabularies))
    state, _ = read_tensors(state_path(undisturbed / TRAINING, 24))
    last = {name: state[f"model.{name}"] for name in fresh}
    for step, wanted in ((0, fresh), (24, last)):
        path = snapshot_path(undisturbed / HISTORY, step)
        tensors, _ = read_tensors(path)
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
        assign(contents.model, tensors, path)
        for name, tensor in parameters(contents.model).items():
            torch.testing.assert_close(tensor, wanted[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("step", [1, 2, 5, 8])
def test_a_resumed_run_keeps_the_same(step: int, corpus: list[Path], undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop_at(step, files=corpus, output=folder)
    assert set(history(folder)) < set(history(undisturbed))
    later = snapshot_path(folder / HISTORY, 9)
    later.write_bytes(b"of a run that was killed after its last checkpoint")
    list(resume(folder))
    assert history(folder) == history(undisturbed)


def test_overwriting_removes_what_was_kept(corpus: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop_at(2, files=corpus, output=folder)
    assert history(folder)
    list(train(corpus, folder, overrides={**SMALL, "training.steps": 1}, overwrite=True))
    assert not (folder / HISTORY).exists()


def test_a_run_that_ends_early_keeps_its_last_step(corpus: list[Path], tmp_path: Path) -> None:
    nothing_learnt = {"training.learning_rate": 0.0, "training.warmup": 0, "training.patience": 1}
    list(train(corpus, tmp_path / "run", overrides={**KEPT, **nothing_learnt}))
    assert max(history(tmp_path / "run")) == snapshot_path(Path(), 16).name


def test_the_history_has_merged_adapters(corpus: list[Path], undisturbed: Path, tmp_path: Path) -> None:
    changes = {"training.adapters": 2, "training.history": 2, "training.steps": 8, "training.average": 1}
    list(train(corpus, tmp_path / "run", overrides=changes, start=undisturbed))
    before, after = (read_tensors(snapshot_path(tmp_path / "run" / HISTORY, step))[0] for step in (0, 8))
    first, last = (read_tensors(folder / WEIGHTS)[0] for folder in (undisturbed, tmp_path / "run"))
    assert set(before) == set(first)
    for name in first:
        torch.testing.assert_close(before[name], first[name].half(), rtol=0, atol=0)
        torch.testing.assert_close(after[name].float(), last[name], rtol=1e-2, atol=1e-3)
