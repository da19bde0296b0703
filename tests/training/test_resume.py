"""A run that is killed at any moment and resumed ends with the same weights bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.corpora import SMALL, write_reversals

GIVEN = {
    **SMALL,
    "training.threads": 1 if "PYTEST_XDIST_WORKER" in os.environ else 2,  # beside other tests there is one core
    "training.ema": 0.9,
    "training.subword_sampling": 0.1,
    "training.dropout_warmup": 3.5,
    "training.optimizer": "muon",
}
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["regard.preparation.train_and_resume"])  # torch is loaded once, not for every victim


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(folder: Path, corpus: list[Path], kind: str, moment: int) -> None:
    """Trains or resumes in `folder`, and kills itself at the given moment."""
    from regard import weights
    from regard.preparation.train_and_resume import resume, train
    from regard.training.events import Progress

    count = 0
    real_fsync, real_save = os.fsync, vars(weights)["save_file"]

    def fsync(handle: Any) -> None:
        nonlocal count
        count += 1
        if kind == "write" and count == moment:
            die()
        real_fsync(handle)

    def save_file(tensors: Any, path: Path, metadata: Any = None) -> None:
        nonlocal count
        count += 1
        real_save(tensors, path, metadata)
        if kind == "half a file" and count == moment:
            os.truncate(path, path.stat().st_size // 2)
            die()

    if kind == "write":
        os.fsync = fsync  # type: ignore[assignment]
    if kind == "half a file":
        vars(weights)["save_file"] = save_file
    # killed before anything was on disk, there is nothing to resume, and nothing in the way either
    started = (folder / "training.new" / "request.json").exists() or (folder / "training").exists()
    for event in resume(folder) if started else train(corpus, folder, overrides=GIVEN):
        if kind == "step" and isinstance(event, Progress) and event.step == moment:
            die()


def finish(folder: Path, corpus: list[Path]) -> bytes:
    process = CONTEXT.Process(target=work, args=(folder, corpus, "never", 0))
    process.start()
    process.join(600)
    assert process.exitcode == 0
    return (folder / "weights.safetensors").read_bytes()


def kill(folder: Path, corpus: list[Path], kind: str, moment: int) -> None:
    process = CONTEXT.Process(target=work, args=(folder, corpus, kind, moment))
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL, "the moment never came"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_reversals(tmp_path_factory.mktemp("corpus"), 300)


@pytest.fixture(scope="module")
def undisturbed(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return finish(tmp_path_factory.mktemp("runs") / "undisturbed", corpus)


MOMENTS = [
    *(("step", step) for step in (1, 8, 9, 15, 23)),  # before, at and after evaluations; mid-epoch
    *(("write", call) for call in (1, 2, 7, 15, 17, 18, 19, 21, 23, 26)),  # preparing, checkpoints, the end
    *(("half a file", call) for call in (1, 2, 3, 5, 7)),
]
SOME = {("step", 9), ("write", 1), ("write", 7), ("write", 18), ("write", 26), ("half a file", 1), ("half a file", 5)}


@pytest.mark.parametrize(
    ("kind", "moment"),
    [pytest.param(*each, marks=() if each in SOME else pytest.mark.slow) for each in MOMENTS],
)
def test_sigkill_and_resume_give_the_same_weights(
    kind: str, moment: int, corpus: list[Path], undisturbed: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    kill(folder, corpus, kind, moment)
    assert finish(folder, corpus) == undisturbed


def test_killed_again_and_again_at_any_time(corpus: list[Path], undisturbed: bytes, tmp_path: Path) -> None:
    """The process is killed from outside, after a random time."""
    folder = tmp_path / "run"
    for seconds in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8):
        process = CONTEXT.Process(target=work, args=(folder, corpus, "never", 0))
        process.start()
        wait_for(lambda: folder.exists(), 300)
        time.sleep(seconds)
        process.kill()
        process.join()
    assert finish(folder, corpus) == undisturbed


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
