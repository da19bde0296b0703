"""Several processes that train one model: what the command does in them, and what it shows of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.training.events import Event


def train_together(folder: Path, processes: int) -> int:
    """Trains what is prepared in `folder` in so many processes on this machine; returns the exit code.

    When one is lost, all start over from the last checkpoint. When one is told to end and this one is not, as where a
    machine is taken away, they have saved, and go on likewise.
    """
    from regard.model_folder import read_settings
    from regard.training.distributed import launch

    left = read_settings(folder).training.restarts
    while True:
        found = launch(work, (str(folder),), processes, left)
        if found is None:
            return 130
        for _, line in found.values():
            if line:
                print(f"regard: {line}", file=sys.stderr)
        codes: set[int] = {code for code, _ in found.values()}
        if codes != {130} or not left:
            return max(codes)
        left -= 1
        print("A process was told to end: all start over from what was saved.")


def work(folder: str) -> tuple[int, str]:
    """Trains as one of several processes; returns the exit code and, where there is one, the line of an error."""
    from regard.cli.train import with_interrupts
    from regard.preparation.train_and_resume import resume
    from regard.training.distributed import LostProcessError

    stop = threading.Event()
    with_interrupts(stop)
    try:
        return follow(resume(folder, stop=stop), Path(folder)), ""
    except LostProcessError:
        sys.exit(1)  # which is what starts all of them over
    except RegardError as error:
        return 2, " ".join(str(error).split())


def follow(events: Iterator[Event], folder: Path) -> int:
    """Shows a run to its end in the first process, and goes through it in the others; returns the exit code."""
    from regard.cli.train import say_what_next
    from regard.cli.training_display import show_training
    from regard.training.distributed import LostProcessError, ToldElsewhereError
    from regard.training.events import Finished

    if rank() == 0:
        return say_what_next(show_training(events), folder)
    try:
        complete = [event.complete for event in events if isinstance(event, Finished)]
    except ToldElsewhereError:
        return 2
    except LostProcessError:
        sys.exit(1)  # the first process tells of it or, if it is the lost one, whoever started them
    return 0 if complete[-1:] == [True] else 130


def is_started() -> bool:
    """Whether torchrun, or `train_together`, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    """The number of this process among those that were started."""
    return int(os.environ["RANK"]) if is_started() else 0
