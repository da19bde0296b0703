"""Runs of several processes, forked from one that has PyTorch loaded already."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["regard.preparation.train_and_resume", "torch.distributed.fsdp", "torch._dynamo"])
LOSSES = "losses.json"


def member(rank: int, size: int, port: int, folder: Path, overrides: dict[str, Any]) -> None:
    """Continues a run as one of several processes of torchrun; the first records losses and norms.

    `overrides` may have fates of the last process: the step after which it shall `die`, `leave` or `spoil` its loss.
    """
    from regard.errors import RegardError
    from regard.preparation.train_and_resume import resume
    from regard.training.events import Progress

    environment: dict[str, object] = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in environment.items()})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    fate = {name: overrides.pop(name, 0) for name in ("die", "spoil", "leave")}
    found = []
    try:
        for event in resume(folder, overrides=overrides, stop=stop):
            if isinstance(event, Progress):
                found.append((event.loss, event.gradient))
                if rank == size - 1:
                    befall(fate, event.step)
    except RegardError as error:
        (folder / f"error-{rank}.txt").write_text(f"{type(error).__name__}: {error}")
        os._exit(2)
    if rank == 0:
        (folder / LOSSES).write_text(json.dumps(found))


def befall(fate: dict[str, int], step: int) -> None:
    """Makes the last process die, leave or spoil its loss after a step."""
    from regard.training import loop

    if step == fate["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == fate["leave"]:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == fate["spoil"]:
        real = loop.forward_and_backward
        setattr(loop, "forward_and_backward", lambda *a: (float("nan"), real(*a)[1]))  # noqa: B010


def start(folder: Path, size: int, **overrides: Any) -> list[BaseProcess]:
    """Starts processes that continue the prepared run in a folder."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    settings = {name.replace("__", "."): value for name, value in overrides.items()}
    processes: list[BaseProcess] = [
        CONTEXT.Process(target=member, args=(rank, size, port, folder, settings)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[BaseProcess], seconds: float = 600) -> list[int | None]:
    """Waits for all processes, kills those that are late, and returns the exit codes."""
    for process in processes:
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def losses(folder: Path, size: int, **overrides: Any) -> list[tuple[float, float]]:
    """Trains a prepared run in several processes; returns the loss and the norm of the gradient of each step."""
    assert finish(start(folder, size, **overrides)) == [0] * size, [p.read_text() for p in folder.glob("error-*.txt")]
    return [(loss, norm) for loss, norm in json.loads((folder / LOSSES).read_text())]
