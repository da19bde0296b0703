"""Training, from files to a finished model folder, as a stream of events."""

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
from regard.preparation.prepared_folder import changed_training, claim, is_begun, prepare, reopen, told
from regard.preparation.synthetic_corpus import synthesize, with_back_translation
from regard.preparation.task_preparation import Request, absolute_paths
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
from regard.weights import (
    choose_device,
    read_folder,
)

Begun = Request | Finished | None
"""What is still to be prepared, or how a run has ended; none: training can begin."""


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
    """Trains a model on corpus files, one or several, into a model folder, while the events are read.

        >>> for event in regard.train(["train.en", "train.de"], "runs/en-de", overrides={"training.steps": 2000}):
        ...     print(event)

    `overrides` are settings by their dotted names; `task` says what the model is for. `start` is a model whose
    weights and vocabulary are the first ones: its shape takes the place of that in `settings_file`. `back_translate`
    is text in the target language: the model `reverse`, or one that is trained first, translates it back into more
    pairs. Setting `stop` ends the run, saved; with `prepare_only` it ends before the first update. `resume` goes on.
    Where torchrun has started several processes, they train together.
    """
    folder, given = require_path(output, "output"), gather(settings_file, overrides, starting=start is not None)
    corpora = [require_paths(names, what) for names, what in ((files, "train"), (dev, "dev"), (test, "test"))]
    mono = require_paths(back_translate, "back_translate")
    for model, what in ((start, "start"), (reverse, "reverse")):
        if model is not None:
            require_path(model, what)
    left_out = (
        find_shape_settings(read_toml(Path(settings_file))) if settings_file is not None and start is not None else ()
    )
    notes = [Note(f"{settings_file}: taken from {start} instead of this file: {', '.join(left_out)}.")] * bool(left_out)

    def begin(group: ProcessGroup) -> Begun:
        first = None if start is None else read_folder(Path(start)).settings  # all of it: a damaged one is refused now
        settings = resolve(given, start=first)
        if settings.training.adapters and start is None:
            raise SettingsError("training.adapters change a model that is there: give one with --from")
        device = choose_device(settings.training.device)
        absolute = [absolute_paths(names, settings) for names in corpora]
        origin = None if start is None else str(Path(start).resolve())
        request = Request(absolute[0], given, device.type, absolute[1], absolute[2], origin)
        request = with_back_translation(request, settings, mono, reverse)
        if group.restart and is_begun(folder, request):
            return reopen(folder) or finished_run(folder)
        claim(folder, overwrite, request.reads)
        return request

    return Training(folder, conduct(folder, begin, stop or threading.Event(), given, prepare_only, notes))


def resume(
    output: Path | str,
    *,
    overrides: Mapping[str, Any] | None = None,
    stop: threading.Event | None = None,
    prepare_only: bool = False,
) -> Training:
    """Goes on with a run that was interrupted, as if it had not been; `overrides` may change [training] only.

    >>> for event in regard.resume("runs/en-de", overrides={"training.steps": 4000}):
    ...     print(event)

    Of a run that is finished, changes nothing, and its events say so.
    """
    folder = require_path(output, "resume")

    def begin(group: ProcessGroup) -> Begun:
        request = reopen(folder)
        if request is None and not (folder / TRAINING / ABOUT).exists():
            model = f": start a new run with regard train FILES --from {folder}" if (folder / WEIGHTS).exists() else ""
            raise ModelError(f"{folder}: there is no training to resume here{model}")
        if overrides and request is not None:
            raise SettingsError(
                f"{folder}: was stopped while preparing: resume it as it was, or train with --overwrite"
            )
        several = group.size > 1 or prepare_only  # which is for several
        changed = changed_training(folder, overrides, several) if overrides else None
        finished = None if request is not None else finished_run(folder, changed)
        used = find_removed(read_toml(folder / SETTINGS), in_use=True) if request is None and finished is None else []
        if used:
            raise SettingsError(f"{folder}: was trained with {used[0]}, which this version does not have: train anew")
        if changed is not None and finished is None:
            write_text(folder / SETTINGS, dump(changed))
        return request or finished

    given = override(read_record(folder / SETTINGS) if (folder / SETTINGS).exists() else {}, overrides)
    return Training(folder, conduct(folder, begin, stop or threading.Event(), given, prepare_only))


def conduct(
    folder: Path,
    begin: Callable[[ProcessGroup], Begun],
    stop: threading.Event,
    given: Mapping[str, Any],
    prepare_only: bool = False,
    notes: Iterable[Note] = (),
) -> Generator[Event, None, None]:
    """Prepares what `begin` asks for in one process, and trains in all that there are; the notes come first."""
    yield from notes
    group = join_group(int(given.get("training", {}).get("timeout", TrainingSettings.timeout)))
    try:
        with sole_writer(folder) if group.first else nullcontext(), report_lost_process():
            ended = yield from group.run_in_first(lambda: prepared(folder, begin(group), stop))
            if ended:
                yield Finished(**ended)
            elif not prepare_only:
                yield from train_model(open_run(folder, stop, group))
    finally:
        group.leave()


def run(folder: Path, request: Request | None, stop: threading.Event) -> Iterator[Event]:
    """Prepares what was requested, if anything was, and trains, all in this process."""
    ended = yield from prepared(folder, request, stop)
    if ended:
        yield Finished(**ended)
    else:
        yield from train_model(open_run(folder, stop))


def prepared(folder: Path, begun: Begun, stop: threading.Event) -> Generator[Event, None, dict[str, Any]]:
    """Prepares what was requested; returns how the run has ended, or nothing if training can begin."""
    if isinstance(begun, Finished):
        yield explain_finished(folder, begun)
        return asdict(begun)
    if begun is not None:
        if begun.synthetic:
            yield from synthesize(folder, begun, stop, run)
        if not (begun.synthetic and stop.is_set()):
            yield from told(lambda tell: prepare(folder, begun, tell), stop)
        if stop.is_set():
            return asdict(Finished("stopped", False, 0, 0.0, {}))
    return {}
