"""Trains model folders from corpus files, as a stream of events: `train`, `distill` and `resume`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.argument_checks import require_path, require_paths
from regard.atomic_files import write_text
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import InputError, ModelError, SettingsError
from regard.files.corpus_files import expand_paths
from regard.files.formats.format_by_suffix import require_plain
from regard.files.remote_files import as_path
from regard.model_folder import SETTINGS, TRAINING, WEIGHTS
from regard.preparation.chosen_settings import find_shape_settings, gather, override, resolve
from regard.preparation.prepared_folder import changed_settings, claim_folder, has_same_request, install_if_ready
from regard.preparation.run_in_folder import Beginning, run_in_folder
from regard.preparation.synthetic_pairs import SYNTHETIC
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import Settings
from regard.settings.option_fields import dump, merge
from regard.settings.recorded_settings import find_removed, read_record, read_toml
from regard.training.distributed import ProcessGroup
from regard.training.events import Note, Training
from regard.training.stopping import finished_run
from regard.training.tasks.task import ABOUT
from regard.untrusted_files import require_regular
from regard.weights import choose_device, read_folder


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
    """Trains a model on one or more corpus files and writes a model folder; makes progress while events are read.

        >>> for event in regard.train(["train.en", "train.de"], "runs/en-de", overrides={"training.steps": 2000}):
        ...     print(event)

    `overrides` maps dotted names of settings to values; the setting `task` says what the model does. With `start`,
    training begins with the weights, vocabulary and shape of that model, which replace the shape in `settings_file`.
    `back_translate` is text in the target language, which the model `reverse`, or one that is trained first, translates
    back to generate more pairs. Setting `stop` saves and ends the run; with `prepare_only`, it ends before the first
    update. `resume` continues it. Processes started by torchrun train together.
    """
    folder, given = require_path(output, "output"), gather(settings_file, overrides, starting=start is not None)
    corpora = [require_paths(names, what) for names, what in ((files, "train"), (dev, "dev"), (test, "test"))]
    texts = require_paths(back_translate, "back_translate")
    for model, what in ((start, "start"), (reverse, "reverse")):
        if model is not None:
            require_path(model, what)
    notes = []
    if settings_file and start and (names := find_shape_settings(read_toml(Path(settings_file)))):
        notes = [Note(f"{settings_file}: these settings come from {start}, not from this file: {', '.join(names)}.")]

    def make_request() -> TrainingRequest:
        # read the whole model to find damage early
        settings = resolve(given, start=None if start is None else read_folder(Path(start)).settings)
        if settings.training.adapters and start is None:
            raise SettingsError("training.adapters needs an existing model: pass --from MODEL")
        request = request_for(corpora, given, settings)
        if start is not None:
            request = replace(request, start=str(Path(start).resolve()))
        return with_back_translation(request, settings, texts, reverse)

    begin = new_run(folder, overwrite, make_request)
    return Training(folder, run_in_folder(folder, begin, stop or threading.Event(), given, prepare_only, notes))


def distill(
    teacher: Path | str,
    files: Path | str | Iterable[Path | str],
    output: Path | str,
    *,
    dev: Path | str | Iterable[Path | str] = (),
    test: Path | str | Iterable[Path | str] = (),
    settings_file: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    stop: threading.Event | None = None,
) -> Training:
    """Trains a new model on the teacher's translations of the sources; `resume` continues it.

        >>> for event in regard.distill("runs/big", ["train.en", "train.de"], "runs/small"):
        ...     print(event)

    `files` is one text file or a corpus of pairs. Without `dev`, a dev set is split off these pairs; it keeps their
    targets, and the student never sees the teacher's translations of it. The other arguments are those of `train`.
    """
    folder, given = require_path(output, "output"), gather(settings_file, overrides)
    require_path(teacher, "teacher")
    corpora = [require_paths(names, what) for names, what in ((files, "distill"), (dev, "dev"), (test, "test"))]

    def make_request() -> TrainingRequest:
        data = load_as(Translator, teacher, "cpu").settings.data  # read the whole model to find damage early
        if data.directions:
            raise SettingsError(f"{teacher}: translates in several directions: use a teacher with a single direction")
        asked = merge({"data": {"source": data.source, "target": data.target}}, given)
        settings = resolve(asked)
        if settings.task != "translate":
            raise SettingsError(f"distillation trains translators: leave out task = {settings.task}")
        if settings.training.adapters:
            raise SettingsError("training.adapters needs an existing model, but a student is trained from scratch")
        return replace(request_for(corpora, asked, settings), teacher=str(Path(teacher).resolve()))

    begin = new_run(folder, overwrite, make_request)
    return Training(folder, run_in_folder(folder, begin, stop or threading.Event(), given))


def resume(
    output: Path | str,
    *,
    overrides: Mapping[str, Any] | None = None,
    stop: threading.Event | None = None,
    prepare_only: bool = False,
) -> Training:
    """Continues an interrupted run; the result is the same as without the interruption.

    >>> for event in regard.resume("runs/en-de", overrides={"training.steps": 4000}):
    ...     print(event)

    `overrides` may only change settings in [training]. A finished run is not changed, and a note says so.
    """
    folder = require_path(output, "resume")
    if (folder / SETTINGS).exists():
        require_regular(folder / SETTINGS, folder)  # reading a pipe would not end

    def begin(group: ProcessGroup) -> Beginning:
        request = install_if_ready(folder)
        if request is not None:
            if overrides:
                raise SettingsError(
                    f"{folder}: was stopped during preparation: resume without changes, or train with --overwrite"
                )
            return request
        if not (folder / TRAINING / ABOUT).exists():
            model = f": start a new run with regard train FILES --from {folder}" if (folder / WEIGHTS).exists() else ""
            raise ModelError(f"{folder}: there is no training run to resume{model}")
        several = group.size > 1 or prepare_only  # a run that is only prepared will train in several processes
        changed = changed_settings(folder, overrides, several) if overrides else None
        if finished := finished_run(folder, changed):
            return finished
        if removed := find_removed(read_toml(folder / SETTINGS), in_use=True):
            raise SettingsError(
                f"{folder}: was trained with {removed[0]}, which this version does not support: train a new model"
            )
        if changed is not None:
            write_text(folder / SETTINGS, dump(changed))
        return None

    given = override(read_record(folder / SETTINGS) if (folder / SETTINGS).exists() else {}, overrides)
    return Training(folder, run_in_folder(folder, begin, stop or threading.Event(), given, prepare_only))


def request_for(corpora: Iterable[Sequence[Path | str]], given: dict[str, Any], settings: Settings) -> TrainingRequest:
    """Returns the request to train on files, with absolute paths; expands folders and patterns of pairs."""
    is_pairs = settings.task == "translate"
    paths = [expand_paths(names, settings.data) if is_pairs else map(as_path, names) for names in corpora]
    files, dev, test = ([str(path.absolute()) for path in each] for each in paths)
    return TrainingRequest(files, given, choose_device(settings.training.device).type, dev, test)


def new_run(
    folder: Path, overwrite: bool, make_request: Callable[[], TrainingRequest]
) -> Callable[[ProcessGroup], Beginning]:
    """Returns a function that begins a run in a folder, or continues it after its processes were restarted."""

    def begin(group: ProcessGroup) -> Beginning:
        request = make_request()
        if group.restart and has_same_request(folder, request):
            return install_if_ready(folder) or finished_run(folder)
        claim_folder(folder, overwrite, request.inputs)
        return request

    return begin


def with_back_translation(
    request: TrainingRequest, settings: Settings, texts: Sequence[Path | str], reverse: Path | str | None
) -> TrainingRequest:
    """Adds back-translation to a request; raises an error for invalid combinations before any work is done."""
    if not texts:
        if reverse is not None:
            raise InputError("--reverse MODEL needs text to translate back: add --back-translate FILES")
        return request
    if settings.task != "translate":
        raise SettingsError(f"--back-translate does not apply to the task {settings.task}: leave it out")
    if settings.data.directions:
        raise SettingsError("--back-translate supports only one direction: train without data.directions")
    for path in map(as_path, texts):
        require_plain(path, "--back-translate takes plain text, one sentence per line (it may end in .gz)")
    if reverse is not None:
        require_opposite(Path(reverse), settings)
    elif request.start is not None:
        raise InputError("--back-translate with --from needs a model that translates back: add --reverse MODEL")
    tags = settings.tokenizer.tags
    given = request.given
    if SYNTHETIC not in tags and request.start is None:
        given = merge(given, {"tokenizer": {"tags": [*tags, SYNTHETIC]}})
    return replace(
        request,
        given=given,
        texts=[str(as_path(name).absolute()) for name in texts],
        reverse=None if reverse is None else str(Path(reverse).resolve()),
    )


def require_opposite(reverse: Path, settings: Settings) -> None:
    """Raises InputError unless the model translates from the target language into the source language."""
    data, wanted = load_as(Translator, reverse, "cpu").settings.data, settings.data
    if (data.source, data.target) != (wanted.target, wanted.source):
        raise InputError(
            f"{reverse}: translates {data.source} → {data.target}, but --reverse needs {wanted.target} → "
            f"{wanted.source}: use another model, or specify the languages with --source and --target"
        )
