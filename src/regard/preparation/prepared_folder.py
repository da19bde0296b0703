"""Prepares a folder for training in constant memory, and resumes an interrupted preparation."""

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
    CANARY,
    CARD,
    CONFIDENCE,
    HISTORY,
    LOG,
    MANIFEST,
    MEMORY,
    SETTINGS,
    SHORTLIST,
    TOKENIZER,
    TRAINING,
    WEIGHTS,
    has_finished,
    read_settings,
)
from regard.preparation.chosen_settings import override, resolve
from regard.preparation.label_preparation import LabelPreparation
from regard.preparation.pair_preparation import PairPreparation
from regard.preparation.synthetic_pairs import SYNTHETIC
from regard.preparation.task_preparation import Preparation, SendEvent, TrainingRequest
from regard.preparation.text_preparation import TextPreparation
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.settings.recorded_settings import read_record
from regard.tokens.tokenizer import Vocabularies
from regard.training.distributed import ProcessGroup, require_shardable
from regard.training.events import Event
from regard.training.machine_setup import require_precision
from regard.training.run import TASKS, require_metric
from regard.training.tasks.task import ABOUT
from regard.weights import choose_device

NEW, REQUEST, READY, REVERSE = "training.new", "request.json", "ready", "reverse"
SHARDS = "train"
SLOW_TO_MAKE = (REVERSE, SYNTHETIC)
"""Parts of a preparation that are kept after errors."""
EPOCHS = 4
"""Default length, in epochs, of training that starts from another model."""

PREPARATIONS: dict[str, type[Preparation]] = {
    "translate": PairPreparation,
    "write": TextPreparation,
    "fill": TextPreparation,
    "classify": LabelPreparation,
}


def claim_folder(output: Path, overwrite: bool, inputs: Iterable[str]) -> None:
    """Checks that a run may use a folder, and deletes an unfinished preparation in it.

    With `overwrite`, the folder may contain a model. Raises ModelError if it contains other files or inputs of the run.
    """
    if output.exists() and not output.is_dir():
        raise ModelError(f"{output}: is a file, not a folder")
    for name in inputs:
        if as_path(name).resolve().is_relative_to(output.resolve()):
            raise ModelError(f"{output}: this run reads {name} and would overwrite it: choose another folder with -o")

    def has(*names: str) -> bool:
        return any((output / name).exists() for name in names)

    unfinished = f"{NEW}/{REQUEST}"
    files = sorted(path.name for path in output.iterdir() if path.name[0] != ".") if output.is_dir() else []
    if files and files != [NEW] and not has(SETTINGS, unfinished):
        raise ModelError(f"{output}: contains {files[0]} but no model: choose another folder with -o")
    if not overwrite and has(SETTINGS, WEIGHTS, TRAINING, unfinished):
        use = ""
        if has(unfinished) or (has(f"{TRAINING}/{ABOUT}") and not has_finished(output)):
            use = f"continue with regard train --resume {output}, "
        elif has(WEIGHTS):
            use = f"start from it with regard train --from {output}, "
        raise ModelError(
            f"{output}: already contains a model: {use}replace it with --overwrite, or choose another folder with -o"
        )
    shutil.rmtree(output / NEW, ignore_errors=True)


def prepare(output: Path, request: TrainingRequest, send: SendEvent) -> None:
    """Prepares `output`/training.new and replaces the old model with it; an error leaves no traces."""
    new = output / NEW
    with cleaning_up_on_error(output):
        for path in list(new.iterdir()) if new.exists() else []:
            if path.name not in (REQUEST, SHARDS, *SLOW_TO_MAKE):  # left by a crash; reuse complete shards
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_text(new / REQUEST, json.dumps(asdict(request)))
        task = resolve(request.given, start=request.start_settings()).task
        if task not in PREPARATIONS:
            raise SettingsError(f"the task {task} cannot be trained: use {', '.join(PREPARATIONS)}")
        PREPARATIONS[task](new, request, send).run()
        if request.start is not None:
            choose_steps(new, request.given.get("training", {}))
        write_text(new / READY, "")
    install(output)


@contextlib.contextmanager
def cleaning_up_on_error(output: Path) -> Iterator[None]:
    """Deletes the files of a run if preparation fails, except parts that took long to generate."""
    created = [folder for folder in (output, *output.parents) if not folder.exists()]
    new = output / NEW
    try:
        yield
    except InterruptedError:  # the user stopped the run: keep the request to resume it
        raise
    except (RegardError, OSError) as error:
        if not any((new / name).exists() for name in SLOW_TO_MAKE):
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(OSError):  # rmdir keeps folders that are not empty
                for folder in created:
                    folder.rmdir()
        if isinstance(error, OSError):
            raise ModelError(f"{output}: cannot be written ({explain_write_error(error)})") from None
        raise


def choose_steps(new: Path, given: dict[str, Any]) -> None:
    """Limits training that starts from another model to `EPOCHS` epochs, unless the user has set the steps."""
    settings = read_settings(new)
    task = TASKS[settings.task](new, settings, Vocabularies.load(new / TOKENIZER), torch.device("cpu"))
    steps = max(20, EPOCHS * math.ceil(len(task.plan(0)) / settings.training.accumulate))
    steps = int(given.get("steps", min(steps, settings.training.steps)))
    chosen: dict[str, Any] = {"steps": steps, "warmup": steps // 10, "evaluate_every": max(1, steps // 10)}
    training = replace(settings.training, **{name: value for name, value in chosen.items() if name not in given})
    write_text(new / SETTINGS, dump(replace(settings, training=training)))


def install(output: Path) -> None:
    """Replaces the old model by the prepared one; each step can be repeated after a crash."""
    new = output / NEW
    for name in (MANIFEST, CANARY, WEIGHTS, CARD, CONFIDENCE, SHORTLIST, LOG):
        (output / name).unlink(missing_ok=True)
    if (new / SETTINGS).exists():  # otherwise, this is a repetition, and MEMORY is already the new one
        (output / MEMORY).unlink(missing_ok=True)
    for name in (HISTORY, TRAINING):
        shutil.rmtree(output / name, ignore_errors=True)
    for name in (SETTINGS, TOKENIZER, MEMORY):
        if (new / name).exists():
            (new / name).replace(output / name)
    new.rename(output / TRAINING)
    sync_folder(output)


def install_if_ready(output: Path) -> TrainingRequest | None:
    """Installs a complete preparation; if it is incomplete, returns its request instead."""
    if (output / NEW / READY).exists():
        install(output)
    path = output / NEW / REQUEST
    return TrainingRequest(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def has_same_request(output: Path, request: TrainingRequest) -> bool:
    paths = [path for path in (output / NEW / REQUEST, output / TRAINING / REQUEST) if path.exists()]
    return bool(paths) and json.loads(paths[0].read_text(encoding="utf-8")) == json.loads(json.dumps(asdict(request)))


def events_from_thread(work: Callable[[SendEvent], None], stop: threading.Event) -> Iterator[Event]:
    """Runs `work` in a thread and yields the events that it sends; once `stop` is set, its next event ends it."""
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    def send(event: Event) -> None:
        if stop.is_set():
            raise InterruptedError
        events.put(event)

    def run_work() -> None:
        try:
            work(send)
            events.put(None)
        except BaseException as error:  # noqa: BLE001 (raised again in the thread that reads the events)
            events.put(error)

    threading.Thread(target=run_work, daemon=True).start()
    while (event := events.get()) is not None:
        if isinstance(event, InterruptedError):
            return
        if isinstance(event, BaseException):
            raise event
        yield event


def changed_settings(folder: Path, overrides: Mapping[str, Any], several_processes: bool) -> Settings:
    """Returns a folder's settings with changed training settings; raises SettingsError if training rejects them."""
    fixed = [name for name in overrides if not name.startswith("training.")]
    if fixed:
        raise SettingsError(f"{fixed[0]} cannot be changed when resuming: only training settings can")
    training = resolve(override(read_record(folder / SETTINGS), overrides)).training
    settings = replace(read_settings(folder), training=training)
    require_metric(settings)
    require_precision(training, choose_device(training.device))
    if several_processes:
        require_shardable(training, ProcessGroup())
    return settings
