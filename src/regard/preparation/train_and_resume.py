"""Trains from corpus files to a finished model folder, as a stream of events: `train` and `resume`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.argument_checks import require_path, require_paths
from regard.atomic_files import write_text
from regard.errors import ModelError, SettingsError
from regard.model_folder import SETTINGS, TRAINING, WEIGHTS, sole_writer
from regard.preparation.prepared_folder import (
    changed_settings,
    claim_folder,
    events_from_thread,
    has_same_request,
    install_if_ready,
    prepare,
)
from regard.preparation.synthetic_corpus import synthesize, with_back_translation
from regard.preparation.task_preparation import TrainingRequest, absolute_paths
from regard.settings import TrainingSettings
from regard.settings.option_fields import dump
from regard.settings.resolution import (
    find_removed,
    find_shape_settings,
    gather,
    override,
    read_record,
    read_toml,
    resolve,
)
from regard.training.distributed import ProcessGroup, join_group, report_lost_process
from regard.training.events import Event, Finished, Note, Training
from regard.training.loop import train_model
from regard.training.run import open_run
from regard.training.stopping import explain_finished, finished_run
from regard.training.tasks.task import ABOUT
from regard.weights import choose_device, read_folder

Beginning = TrainingRequest | Finished | None
"""A request that is still to be prepared, or how a run has ended; None if training can begin."""


def train(
    files: Path | str | Iterable[Path | str],
    output: Path | str,
    *,
    dev: Path | str | Iterable[Path | str] = (),
    test: Path | str | Iterable[Path | str] = (),
    settings_file: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    start: Path | str | None = None,
    back_translate: Path | str | Iterable[Path | str] = (),
    reverse: Path | str | None = None,
    overwrite: bool = False,
    stop: threading.Event | None = None,
    prepare_only: bool = False,
) -> Training:
    """Trains a model on one or several corpus files into a model folder, while the events are read.

        >>> for event in regard.train(["train.en", "train.de"], "runs/en-de", overrides={"training.steps": 2000}):
        ...     print(event)

    `overrides` are settings by their dotted names; `task` says what the model is for. Training begins with the weights,
    the vocabulary and the shape of the model `start`, which replaces the shape in `settings_file`. `back_translate` is
    text in the target language: the model `reverse`, or one that is trained first, translates it back into more pairs.
    Setting `stop` saves and ends the run; with `prepare_only` it ends before the first update. `resume` continues it.
    Processes that torchrun has started train together.
    """
    folder, given = require_path(output, "output"), gather(settings_file, overrides, starting=start is not None)
    corpora = [require_paths(names, what) for names, what in ((files, "train"), (dev, "dev"), (test, "test"))]
    texts = require_paths(back_translate, "back_translate")
    for model, what in ((start, "start"), (reverse, "reverse")):
        if model is not None:
            require_path(model, what)
    notes = []
    if (
        settings_file is not None
        and start is not None
        and (names := find_shape_settings(read_toml(Path(settings_file))))
    ):
        notes = [Note(f"{settings_file}: taken from {start} instead of this file: {', '.join(names)}.")]

    def make_request() -> TrainingRequest:
        # the whole model is read, so that a damaged one is refused now
        settings = resolve(given, start=None if start is None else read_folder(Path(start)).settings)
        if settings.training.adapters and start is None:
            raise SettingsError("training.adapters change an existing model: pass --from MODEL")
        device = choose_device(settings.training.device)
        absolute = [absolute_paths(names, settings) for names in corpora]
        origin = None if start is None else str(Path(start).resolve())
        request = TrainingRequest(absolute[0], given, device.type, absolute[1], absolute[2], origin)
        return with_back_translation(request, settings, texts, reverse)

    begin = new_run(folder, overwrite, make_request)
    return Training(folder, conduct(folder, begin, stop or threading.Event(), given, prepare_only, notes))


def new_run(
    folder: Path, overwrite: bool, make_request: Callable[[], TrainingRequest]
) -> Callable[[ProcessGroup], Beginning]:
    """Returns the function that begins a run in a folder, or continues it after a restart of its processes."""

    def begin(group: ProcessGroup) -> Beginning:
        request = make_request()
        if group.restart and has_same_request(folder, request):
            return install_if_ready(folder) or finished_run(folder)
        claim_folder(folder, overwrite, request.inputs)
        return request

    return begin


def resume(
    output: Path | str,
    *,
    overrides: Mapping[str, Any] | None = None,
    stop: threading.Event | None = None,
    prepare_only: bool = False,
) -> Training:
    """Continues an interrupted run with the same result as without the interruption.

    >>> for event in regard.resume("runs/en-de", overrides={"training.steps": 4000}):
    ...     print(event)

    `overrides` may change [training] only. A finished run is not changed, and the events say so.
    """
    folder = require_path(output, "resume")

    def begin(group: ProcessGroup) -> Beginning:
        request = install_if_ready(folder)
        if request is not None:
            if overrides:
                raise SettingsError(
                    f"{folder}: was stopped while preparing: resume it as it was, or train with --overwrite"
                )
            return request
        if not (folder / TRAINING / ABOUT).exists():
            model = f": start a new run with regard train FILES --from {folder}" if (folder / WEIGHTS).exists() else ""
            raise ModelError(f"{folder}: there is no training to resume here{model}")
        several = group.size > 1 or prepare_only  # preparation alone is for several processes
        changed = changed_settings(folder, overrides, several) if overrides else None
        if finished := finished_run(folder, changed):
            return finished
        if removed := find_removed(read_toml(folder / SETTINGS), in_use=True):
            raise SettingsError(
                f"{folder}: was trained with {removed[0]}, which this version does not have: train a new model"
            )
        if changed is not None:
            write_text(folder / SETTINGS, dump(changed))
        return None

    given = override(read_record(folder / SETTINGS) if (folder / SETTINGS).exists() else {}, overrides)
    return Training(folder, conduct(folder, begin, stop or threading.Event(), given, prepare_only))


def conduct(
    folder: Path,
    begin: Callable[[ProcessGroup], Beginning],
    stop: threading.Event,
    given: Mapping[str, Any],
    prepare_only: bool = False,
    notes: Iterable[Note] = (),
) -> Generator[Event, None, None]:
    """Yields the notes, prepares the result of `begin` in the first process, and trains in all processes."""
    yield from notes
    group = join_group(int(given.get("training", {}).get("timeout", TrainingSettings.timeout)))
    try:
        with sole_writer(folder) if group.first else nullcontext(), report_lost_process():
            ended = yield from group.run_in_first(lambda: prepare_run(folder, begin(group), stop))
            if ended:
                yield Finished(**ended)
            elif not prepare_only:
                yield from train_model(open_run(folder, stop, group))
    finally:
        group.leave()


def train_in_process(folder: Path, request: TrainingRequest | None, stop: threading.Event) -> Iterator[Event]:
    """Prepares a request, if there is one, and trains in this process alone."""
    ended = yield from prepare_run(folder, request, stop)
    yield from [Finished(**ended)] if ended else train_model(open_run(folder, stop))


def prepare_run(folder: Path, beginning: Beginning, stop: threading.Event) -> Generator[Event, None, dict[str, Any]]:
    """Prepares a request; returns how the run has ended, or an empty object if training can begin."""
    if isinstance(beginning, Finished):
        yield explain_finished(folder, beginning)
        return asdict(beginning)
    if beginning is not None:
        request = beginning
        if request.synthetic:
            yield from synthesize(folder, request, stop, train_in_process)
        if not (request.synthetic and stop.is_set()):
            yield from events_from_thread(lambda send: prepare(folder, request, send), stop)
        if stop.is_set():
            return asdict(Finished("stopped", False, 0, 0.0, {}))
    return {}
