"""Prepares a corpus for training: the request of a user, and the steps that all tasks share."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.atomic_files import write_text
from regard.errors import SettingsError
from regard.files.corpus_files import expand_paths
from regard.files.remote_files import as_path
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS, read_settings
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.settings.presets import choose_preset
from regard.settings.resolution import resolve
from regard.tokens.corpus_report import Report
from regard.tokens.tokenizer import Vocabularies
from regard.training.events import Event
from regard.training.machine_checks import choose_precision
from regard.training.tasks.task import ABOUT, START, require_metric

Tell = Callable[[Event], None]
"""Takes events as they happen."""


@dataclass(frozen=True)
class Request:
    """What the user asked for; kept, so that a run killed while preparing can start over by itself."""

    files: list[str]
    given: dict[str, Any]  # settings that the user set
    device: str  # its kind, for the choice of a preset
    dev: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    start: str | None = None  # the model whose weights are the first ones
    swapped: bool = False  # whether the corpus is read the other way: its targets are the sources
    texts: list[str] = field(default_factory=list)  # in the target language, to be translated back
    reverse: str | None = None  # the model that translates them back; none: it is trained first
    teacher: str | None = None  # the model whose translations of the sources are learnt

    @property
    def synthetic(self) -> bool:
        """Whether a model makes pairs before this one can learn from them."""
        return bool(self.texts) or self.teacher is not None

    @property
    def reads(self) -> list[str]:
        """The files and the models that the run reads."""
        models = filter(None, (self.start, self.reverse, self.teacher))
        return [*self.files, *self.dev, *self.test, *self.texts, *models]


def absolute_paths(names: Sequence[Path | str], settings: Settings) -> list[str]:
    """The files of a request, wherever it is gone on with; folders and patterns stand for files with pairs."""
    found = expand_paths(names, settings.data) if settings.task == "translate" else map(as_path, names)
    return [str(path.absolute()) for path in found]


class Preparation(ABC):
    """The steps from corpus to tokens, each a pass over the files."""

    def __init__(self, new: Path, request: Request, tell: Tell) -> None:
        self.new, self.request, self.tell = new, request, tell
        self.start = None if request.start is None else read_settings(Path(request.start))
        self.settings = resolve(request.given, start=self.start)
        self.data = self.settings.data
        require_metric(self.settings)
        self.why = ""

    @staticmethod
    def task(request: Request) -> str:
        """What the request is for: what it says, or else what the model is for that it starts from."""
        start = None if request.start is None else read_settings(Path(request.start))
        return resolve(request.given, start=start).task

    @abstractmethod
    def run(self) -> None:
        """Fills the folder `new`."""

    def choose(self, size: int, **data: Any) -> Settings:
        """The settings for a corpus of so many pairs, characters or texts, written; `data` is what it told."""
        given = dict(self.request.given)
        if data:
            given["data"] = {**given.get("data", {}), **data}
        preset, why = choose_preset(self.settings.task, size, self.request.device)
        asked = given.get("preset", "auto") != "auto"
        self.why = (
            f"starting from {Path(self.request.start).name}" if self.request.start else "as asked" if asked else why
        )
        chosen = resolve(given, None if self.start else preset, self.start)
        self.settings = choose_precision(chosen, torch.device(self.request.device))
        write_text(self.new / SETTINGS, dump(self.settings))
        return self.settings

    def vocabularies(self, learn: Callable[[], Vocabularies]) -> Vocabularies:
        """The vocabulary of the model to start from, whose weights are copied too, or else a newly learnt one."""
        if self.request.start is None:
            found = learn()
        else:
            found = Vocabularies.load(Path(self.request.start) / TOKENIZER)
            shutil.copyfile(Path(self.request.start) / WEIGHTS, self.new / START)
        write_text(self.new / TOKENIZER, found.to_json())
        return found

    def write_about(self, examples: int, report: Report, held_out: dict[str, int], **more: Any) -> None:
        """What the trainer, the display and the card say of the data."""
        about = {
            "files": [Path(name).name for name in self.request.files],
            "examples": examples,
            "preset": self.settings.preset,
            "reason": self.why,
            "corpus": report.lines(),
            "held_out": held_out,
            **more,
        }
        write_text(self.new / ABOUT, json.dumps(about, ensure_ascii=False))


def write_held_out(path: Path, records: Iterator[dict[str, Any]]) -> None:
    """Writes what `Task.held_out` reads."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def refuse_start(start: Settings | None, task: str, allowed: tuple[str, ...]) -> None:
    """Refuses to start a task from a model whose weights are of no use for it."""
    if start is not None and start.task not in allowed:
        raise SettingsError(
            f"a model to {start.task} cannot become one to {task}: --from needs one to {' or '.join(allowed)}"
        )
