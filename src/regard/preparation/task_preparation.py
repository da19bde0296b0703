"""Defines training requests, and the preparation steps that all tasks share."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch

from regard.atomic_files import write_text
from regard.errors import SettingsError
from regard.files.corpus_report import Report
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS, read_settings
from regard.preparation.chosen_settings import choose_preset, resolve
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.events import Event, Note, Stage
from regard.training.machine_setup import choose_precision
from regard.training.run import require_metric
from regard.training.tasks.task import ABOUT, START

SendEvent = Callable[[Event], None]
Item = TypeVar("Item")


@dataclass(frozen=True)
class TrainingRequest:
    """A user's request to train a model; it is saved to resume runs that were killed during preparation."""

    files: list[str]
    given: dict[str, Any]  # the user's settings
    device: str  # type of device, which affects the choice of a preset
    dev: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    start: str | None = None  # model whose weights and vocabulary to start from
    swapped: bool = False  # use the corpus's targets as sources
    texts: list[str] = field(default_factory=list)  # files of target language text for back-translation
    reverse: str | None = None  # model that translates them back; None: train it first
    teacher: str | None = None  # model whose translations of the sources to learn from

    @property
    def synthetic(self) -> bool:
        """True if another model must generate synthetic pairs first."""
        return bool(self.texts) or self.teacher is not None

    @property
    def held_out(self) -> dict[str, list[str]]:
        """The files of the dev and test sets that the user provided."""
        return {name: files for name, files in (("dev", self.dev), ("test", self.test)) if files}

    @property
    def inputs(self) -> list[str]:
        """The files and models that the run reads."""
        models = filter(None, (self.start, self.reverse, self.teacher))
        return [*self.files, *self.dev, *self.test, *self.texts, *models]

    def start_settings(self) -> Settings | None:
        return None if self.start is None else read_settings(Path(self.start))


class Preparation(ABC):
    """Prepares a corpus for one task in several steps, each of which reads the files once."""

    starts_from: ClassVar[dict[str, tuple[str, ...]]]
    """Maps each task to the tasks of models that it can start from."""

    def __init__(self, new: Path, request: TrainingRequest, send: SendEvent) -> None:
        self.new, self.request, self.send = new, request, send
        self.start = request.start_settings()
        self.settings = resolve(request.given, start=self.start)
        self.data = self.settings.data
        require_metric(self.settings)
        self.preset_reason = ""
        allowed = self.starts_from[self.settings.task]
        if self.start is not None and self.start.task not in allowed:
            raise SettingsError(
                f"the task {self.settings.task} cannot start from a model of the task {self.start.task}: "
                f"--from needs a model of the task {' or '.join(allowed)}"
            )

    @abstractmethod
    def run(self) -> None:
        """Writes the prepared files to the folder `new`."""

    def note(self, text: str) -> None:
        self.send(Note(text))

    def choose_settings(self, size: int, **data: Any) -> Settings:
        """Chooses and writes the settings for a corpus of this size; `data` are settings that the corpus implies."""
        given = dict(self.request.given)
        if data:
            given["data"] = {**given.get("data", {}), **data}
        preset, reason = choose_preset(self.settings.task, size, self.request.device)
        if given.get("preset", "auto") != "auto":
            reason = "as requested"
        self.preset_reason = f"starting from {Path(self.request.start).name}" if self.request.start else reason
        chosen = resolve(given, None if self.start else preset, self.start)
        self.settings = choose_precision(chosen, torch.device(self.request.device))
        write_text(self.new / SETTINGS, dump(self.settings))
        return self.settings

    def write_vocabularies(self, learn: Callable[[], Vocabularies]) -> Vocabularies:
        """Writes new vocabularies from `learn`, or copies the vocabularies and weights of the model to start from."""
        if self.request.start is None:
            vocabularies = learn()
        else:
            vocabularies = Vocabularies.load(Path(self.request.start) / TOKENIZER)
            shutil.copyfile(Path(self.request.start) / WEIGHTS, self.new / START)
        write_text(self.new / TOKENIZER, vocabularies.to_json())
        return vocabularies

    def write_vocabulary(self, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Writes the vocabulary of a task that needs only one; a new one is learned from `texts()`."""

        def learn() -> Vocabularies:
            tokenizer = Tokenizer.train(texts(), self.settings.tokenizer)
            return Vocabularies(tokenizer, tokenizer)

        return self.write_vocabularies(learn).target

    def write_about(self, examples: int, report: Report, held_out: dict[str, int], **more: Any) -> None:
        """Writes facts about the corpus, which the training run, the display and the model card use."""
        about = {
            "files": [Path(name).name for name in self.request.files],
            "examples": examples,
            "preset": self.settings.preset,
            "reason": self.preset_reason,
            "corpus": report.lines(),
            "held_out": held_out,
            **more,
        }
        write_text(self.new / ABOUT, json.dumps(about, ensure_ascii=False))

    def write_held_out(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Writes the records of a held-out set, which `Task.held_out` reads."""
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        write_text(self.new / f"{name}.jsonl", "".join(lines))


def report_progress(items: Iterable[Item], send: SendEvent, stage: str, total: int | None = None) -> Iterator[Item]:
    """Yields the items, and regularly sends the progress of this stage."""
    for number, item in enumerate(items):
        if number % 5000 == 0:
            send(Stage(stage, number, total))
        yield item
