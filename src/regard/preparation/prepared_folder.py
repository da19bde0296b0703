"""From corpus files to a folder that training can start from, in constant memory."""

from __future__ import annotations

import contextlib
import json
import math
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from regard.atomic_files import explain_write_error, sync_folder, write_text
from regard.errors import ModelError, RegardError, SettingsError
from regard.files.remote_files import as_path
from regard.model_folder import (
    CARD,
    CONFIDENCE,
    HISTORY,
    LOG,
    MEMORY,
    SETTINGS,
    SHORTLIST,
    TOKENIZER,
    TRAINING,
    WEIGHTS,
    has_finished,
    read_settings,
)
from regard.preparation.label_preparation import LabelPreparation
from regard.preparation.pair_preparation import PairPreparation
from regard.preparation.synthetic_pairs import SYNTHETIC
from regard.preparation.task_preparation import Preparation, Request, Tell
from regard.preparation.text_preparation import TextPreparation
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.settings.resolution import override, read_record, resolve
from regard.tokens.tokenizer import Vocabularies
from regard.training.distributed import ProcessGroup, require_shardable
from regard.training.events import Event
from regard.training.machine_checks import require_precision
from regard.training.run import TASKS
from regard.training.tasks.task import ABOUT, require_metric
from regard.weights import choose_device

NEW, REQUEST, READY, REVERSE = "training.new", "request.json", "ready", "reverse"
SHARDS = "train"
KEPT = (REVERSE, SYNTHETIC)
"""What takes long to make before a corpus can be prepared: no error removes it."""

PREPARATIONS: dict[str, type[Preparation]] = {
    "translate": PairPreparation,
    "write": TextPreparation,
    "fill": TextPreparation,
    "classify": LabelPreparation,
}


def claim(output: Path, overwrite: bool, reads: Iterable[str]) -> None:
    """Refuses a folder that holds a model, unless it may be overwritten; a run that is given up leaves nothing.

    What is no model is never overwritten, nor is a folder with anything in it that the run `reads`.
    """
    if output.exists() and not output.is_dir():
        raise ModelError(f"{output}: is a file, not a folder")
    for name in reads:
        if as_path(name).resolve().is_relative_to(output.resolve()):
            raise ModelError(f"{output}: this run reads {name}, and would write over it: choose another folder with -o")
    found = sorted(path.name for path in output.iterdir() if path.name[0] != ".") if output.is_dir() else []
    if found and found != [NEW] and not any((output / name).exists() for name in (SETTINGS, f"{NEW}/{REQUEST}")):
        raise ModelError(f"{output}: holds {found[0]}, and no model: choose another folder with -o")
    if not overwrite and any((output / name).exists() for name in (SETTINGS, WEIGHTS, TRAINING, f"{NEW}/{REQUEST}")):
        raise ModelError(
            f"{output}: already holds a model: {_use_of(output)}replace it with --overwrite, or choose another folder "
            "with -o"
        )
    shutil.rmtree(output / NEW, ignore_errors=True)


def _use_of(output: Path) -> str:
    """Says how to train what a folder holds further, if that is possible."""
    begun = (output / TRAINING / ABOUT).exists() and not has_finished(output)
    if begun or (output / f"{NEW}/{REQUEST}").exists():
        return f"go on with regard train --resume {output}, "
    return f"start from it with regard train --from {output}, " if (output / WEIGHTS).exists() else ""


def prepare(output: Path, request: Request, tell: Tell) -> None:
    """Fills `output`/training.new, and puts it in the place of what was there; on an error, leaves no trace."""
    new = output / NEW
    with traceless(output):
        for path in list(new.iterdir()) if new.exists() else []:
            if path.name not in (REQUEST, SHARDS, *KEPT):  # left by a run that was killed; whole shards are used again
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_text(new / REQUEST, json.dumps(asdict(request)))
        preparation_for(new, request, tell).run()
        if request.start is not None:
            settle_steps(new, request.given.get("training", {}))
        write_text(new / READY, "")
    install(output)


@contextlib.contextmanager
def traceless(output: Path) -> Iterator[None]:
    """On an error, removes what was begun in `output`, unless something is there that took long to make."""
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    new = output / NEW
    try:
        yield
    except InterruptedError:  # somebody said stop: the request stays, so that the run can be resumed
        raise
    except (RegardError, OSError) as error:
        if not any((new / name).exists() for name in KEPT):
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(OSError):  # a folder that is not empty stays
                for folder in made:
                    folder.rmdir()
        if isinstance(error, OSError):
            raise ModelError(f"{output}: cannot be written ({explain_write_error(error)})") from None
        raise


def preparation_for(new: Path, request: Request, tell: Tell) -> Preparation:
    """What turns the files of this request into tokens."""
    task = Preparation.task(request)
    if task not in PREPARATIONS:
        raise SettingsError(f"there is nothing to train for the task {task}: use {', '.join(PREPARATIONS)}")
    return PREPARATIONS[task](new, request, tell)


def settle_steps(new: Path, given: dict[str, Any]) -> None:
    """How long a model is trained that starts from another: four epochs, unless the user says otherwise."""
    settings = read_settings(new)
    task = TASKS[settings.task](new, settings, Vocabularies.load(new / TOKENIZER), torch.device("cpu"))
    steps = max(20, EPOCHS * math.ceil(len(task.plan(0)) / settings.training.accumulate))
    steps = int(given.get("steps", min(steps, settings.training.steps)))
    told: dict[str, Any] = {"steps": steps, "warmup": steps // 10, "evaluate_every": max(1, steps // 10)}
    training = {name: value for name, value in told.items() if name not in given}
    write_text(new / SETTINGS, dump(replace(settings, training=replace(settings.training, **training))))


EPOCHS = 4
"""Of training that starts from another model."""


def install(output: Path) -> None:
    """Replaces an old model by the prepared one; each step can be repeated after a kill."""
    new = output / NEW
    for name in (WEIGHTS, CARD, CONFIDENCE, SHORTLIST, LOG):
        (output / name).unlink(missing_ok=True)
    if (new / SETTINGS).exists():  # else this is a repetition, and the memory there is the new one
        (output / MEMORY).unlink(missing_ok=True)
    for name in (HISTORY, TRAINING):
        shutil.rmtree(output / name, ignore_errors=True)
    for name in (SETTINGS, TOKENIZER, MEMORY):
        if (new / name).exists():
            (new / name).replace(output / name)
    new.rename(output / TRAINING)
    sync_folder(output)


def stored_request(output: Path) -> Request | None:
    """The request of a run that was killed while preparing."""
    path = output / NEW / REQUEST
    return Request(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def reopen(output: Path) -> Request | None:
    """Puts what is prepared in its place; else what is still to be prepared."""
    if (output / NEW / READY).exists():
        install(output)
    return stored_request(output)


def is_begun(output: Path, request: Request) -> bool:
    """Whether this very request is what is being done in a folder."""
    paths = [path for path in (output / NEW / REQUEST, output / TRAINING / REQUEST) if path.exists()]
    return bool(paths) and json.loads(paths[0].read_text(encoding="utf-8")) == json.loads(json.dumps(asdict(request)))


def told(work: Callable[[Tell], None], stop: threading.Event) -> Iterator[Event]:
    """The events that `work` tells, as they happen; it runs in a thread, and ends at its next word when stopped."""
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    def tell(event: Event) -> None:
        if stop.is_set():
            raise InterruptedError
        events.put(event)

    def run_work() -> None:
        try:
            work(tell)
            events.put(None)
        except BaseException as error:  # noqa: BLE001 (handed on to the thread that reads the events)
            events.put(error)

    threading.Thread(target=run_work, daemon=True).start()
    while (event := events.get()) is not None:
        if isinstance(event, InterruptedError):
            return
        if isinstance(event, BaseException):
            raise event
        yield event


def changed_training(folder: Path, overrides: Mapping[str, Any], several: bool) -> Settings:
    """Returns the settings of a folder with other ones for training; what the weights depend on cannot be changed.

    Refuses what training, in `several` processes or in one, would refuse. Writes nothing.
    """
    fixed = [name for name in overrides if not name.startswith("training.")]
    if fixed:
        raise SettingsError(f"{fixed[0]} cannot be changed when resuming: only training settings can")
    training = resolve(override(read_record(folder / SETTINGS), overrides)).training
    settings = replace(read_settings(folder), training=training)
    require_metric(settings)
    require_precision(training, choose_device(training.device))
    if several:
        require_shardable(training, ProcessGroup())
    return settings
