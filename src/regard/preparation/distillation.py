"""Trains a student on the translations of its teacher (sequence-level distillation; Kim & Rush, 2016)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.argument_checks import require_path, require_paths
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.preparation.task_preparation import TrainingRequest, absolute_paths
from regard.preparation.train_and_resume import conduct, new_run
from regard.settings.option_fields import merge
from regard.settings.resolution import gather, resolve
from regard.training.events import Training
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
    """Trains a new model on the teacher's translations of the sources; `resume` continues it.

        >>> for event in regard.distill("runs/big", ["train.en", "train.de"], "runs/small"):
        ...     print(event)

    `files` are one file of text or a corpus of pairs. If no dev set is given, it is split off these pairs: it keeps its
    own targets, and the student never sees the teacher's. The other arguments are those of `train`.
    """
    folder, given = require_path(output, "output"), gather(settings_file, overrides)
    require_path(teacher, "teacher")
    corpora = [require_paths(names, what) for names, what in ((files, "distill"), (dev, "dev"), (test, "test"))]

    def make_request() -> TrainingRequest:
        data = load_as(Translator, teacher, "cpu").settings.data  # the whole model: a damaged one is refused now
        if data.directions:
            raise SettingsError(f"{teacher}: translates in several directions: give a teacher of one direction")
        asked = merge({"data": {"source": data.source, "target": data.target}}, given)
        settings = resolve(asked)
        if settings.task != "translate":
            raise SettingsError(f"a teacher that translates cannot teach the task {settings.task}")
        if settings.training.adapters:
            raise SettingsError("training.adapters change an existing model, but a student starts from nothing")
        device = choose_device(settings.training.device)
        absolute = [absolute_paths(names, settings) for names in corpora]
        origin = str(Path(teacher).resolve())
        return TrainingRequest(absolute[0], asked, device.type, absolute[1], absolute[2], teacher=origin)

    begin = new_run(folder, overwrite, make_request)
    return Training(folder, conduct(folder, begin, stop or threading.Event(), given))
