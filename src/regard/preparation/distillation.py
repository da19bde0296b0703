"""A student that learns to say what its teacher says (sequence-level distillation; Kim & Rush, 2016)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.argument_checks import require_path, require_paths
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.preparation.prepared_folder import claim, is_begun, reopen
from regard.preparation.task_preparation import Request, absolute_paths
from regard.preparation.train_and_resume import Begun, conduct
from regard.settings.option_fields import merge
from regard.settings.resolution import gather, resolve
from regard.training.distributed import ProcessGroup
from regard.training.events import Training
from regard.training.stopping import finished_run
from regard.weights import choose_device


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
    """Trains a new model on the teacher's translations of the sources; `resume` goes on with it.

        >>> for event in regard.distill("runs/big", ["train.en", "train.de"], "runs/small"):
        ...     print(event)

    `files` are one file of text or a corpus of pairs, of which the dev set is split off if none is given: it stays as
    it is, and the student never sees what the teacher makes of it. The other arguments are those of `train`.
    """
    folder, asked = require_path(output, "output"), gather(settings_file, overrides)
    require_path(teacher, "teacher")
    corpora = [require_paths(names, what) for names, what in ((files, "distill"), (dev, "dev"), (test, "test"))]

    def begin(group: ProcessGroup) -> Begun:
        request = requested(teacher, asked, *corpora)
        if group.restart and is_begun(folder, request):
            return reopen(folder) or finished_run(folder)
        claim(folder, overwrite, request.reads)
        return request

    return Training(folder, conduct(folder, begin, stop or threading.Event(), asked))


def requested(
    teacher: Path | str,
    asked: Mapping[str, Any],
    files: Sequence[Path | str],
    dev: Sequence[Path | str],
    test: Sequence[Path | str],
) -> Request:
    """What is to be prepared; refuses what cannot work before any work is done."""
    data = load_as(Translator, teacher, "cpu").settings.data  # all of it: a damaged one is refused now
    if data.directions:
        raise SettingsError(f"{teacher}: translates in several directions, a student learns one: give another teacher")
    given = merge({"data": {"source": data.source, "target": data.target}}, asked)
    settings = resolve(given)
    if settings.task != "translate":
        raise SettingsError(f"a teacher that translates cannot teach the task {settings.task}")
    if settings.training.adapters:
        raise SettingsError("training.adapters change a model that is there: a student starts from nothing")
    device = choose_device(settings.training.device)
    absolute = [absolute_paths(names, settings) for names in (files, dev, test)]
    origin = str(Path(teacher).resolve())
    return Request(absolute[0], given, device.type, absolute[1], absolute[2], teacher=origin)
