"""Runs training with faults, in processes that are forked from one with PyTorch loaded."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.training.corpora import SMALL
from tests.training.together import CONTEXT

GIVEN: dict[str, Any] = {**SMALL, "training.ema": 0.9, "model.dropout": 0.1, "training.timeout": 20}
"""A run of a second: 24 updates, three evaluations, each with a state and a checkpoint."""

PLAIN = {**GIVEN, "model.dropout": 0.0}
"""The same without chance in it, for what is equal to rounding."""


def victim(folder: Path, corpus: list[Path], fault: str, amount: float, given: dict[str, Any]) -> None:
    """Trains or resumes in `folder`; its messages are in `folder`.said, and an error ends it with code 2."""
    from regard.errors import RegardError
    from regard.preparation.train_and_resume import resume, train
    from regard.training.events import Finished, Note

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    FAULTS.get(fault, lambda _: None)(amount)
    said: list[str] = []
    complete = False
    try:
        begun = (folder / "training.new" / "request.json").exists() or (folder / "training").exists()
        for event in resume(folder, stop=stop) if begun else train(corpus, folder, overrides=given, stop=stop):
            if isinstance(event, Note):
                said.append(event.text)
            if isinstance(event, Finished):
                complete = event.complete
    except (RegardError, OSError) as error:
        said.append(str(error))
        _say(folder, said)
        os._exit(2)
    _say(folder, said)
    os._exit(0 if complete else 130)


def _say(folder: Path, said: list[str]) -> None:
    if os.geteuid() == EUID:  # one without rights has nothing to write with
        folder.with_suffix(".said").write_text("\n".join(said))


EUID = os.geteuid()


def start(folder: Path, corpus: list[Path], fault: str = "", amount: float = 0, given: dict[str, Any] = GIVEN) -> Any:
    process = CONTEXT.Process(target=victim, args=(folder, corpus, fault, amount, given))
    process.start()
    return process


def run(folder: Path, corpus: list[Path], fault: str = "", amount: float = 0, given: dict[str, Any] = GIVEN) -> int:
    """Runs one to its end; returns its exit code."""
    process = start(folder, corpus, fault, amount, given)
    process.join(300)
    assert process.exitcode is not None, "it hangs"
    return int(process.exitcode)


def said(folder: Path) -> str:
    path = folder.with_suffix(".said")
    return path.read_text() if path.exists() else ""


def no_space(amount: float) -> None:
    """Limits the size of files to this share of a state, as if the disk were full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = int(amount * 500_000)
    sys.dont_write_bytecode = True  # Python would leave cut-off files that the next process cannot read
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def no_rights(_: float) -> None:
    """Makes everything read-only."""
    import encodings.utf_8_sig  # noqa: F401 (what is imported later may be somewhere that nobody else may read)

    import torch._dynamo  # noqa: F401

    if os.geteuid() == 0:
        os.setgroups([])
        os.setegid(65534)
        os.seteuid(65534)


def clock_jumps(amount: float) -> None:
    """Makes the wall clock jump by a year back and forth, and the other clocks ahead by days."""
    real, monotonic, counter, calls = time.time, time.monotonic, time.perf_counter, 0

    def wall() -> float:
        nonlocal calls
        calls += 1
        return real() + (31_536_000 * (-1) ** calls if calls > 10 * amount else 0)

    time.time = wall
    time.monotonic = lambda: monotonic() + (wall() > real()) * 1e6
    time.perf_counter = lambda: counter() + (wall() > real()) * 1e6


def no_memory(amount: float) -> None:
    """Limits memory to `amount` rows of a batch."""
    from regard.training.tasks import translation as pairs

    real = pairs.TranslationTraining.loss

    def loss(task: Any, model: Any, batch: Any, smoothing: float) -> Any:
        if model.training and len(batch) > amount:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte more")
        return real(task, model, batch, smoothing)

    setattr(pairs.TranslationTraining, "loss", loss)  # noqa: B010 (a method of another type, for a test)


FAULTS = {"no space": no_space, "no rights": no_rights, "clock": clock_jumps, "no memory": no_memory}
