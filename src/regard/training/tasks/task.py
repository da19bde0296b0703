"""What the tasks have in common: how a corpus becomes tokens on disk, and what the trainer asks of them."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.atomic_files import write_text
from regard.decoding.confidence import Confidence
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
from regard.training.batches import Rows
from regard.training.events import Event
from regard.training.machine_checks import settled
from regard.weights import Contents, Model

ABOUT, START = "about.json", "start.safetensors"

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
        self.settings = settled(chosen, torch.device(self.request.device))
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
            "report": report.to_dict(),
            "held_out": held_out,
            **more,
        }
        write_text(self.new / ABOUT, json.dumps(about, ensure_ascii=False))


class Batch(Protocol):
    """What one step learns from."""

    @property
    def tokens(self) -> int:
        """How many things are predicted: what the loss is averaged over."""

    @property
    def seen(self) -> int:
        """How many tokens are read, padding not counted."""

    def __len__(self) -> int:
        """How many rows there are."""

    def share(self, part: int, parts: int) -> Batch:
        """Every so manieth row; the losses of all parts are together that of the whole."""


@dataclass(frozen=True)
class Loss:
    """Sums over the predictions of a batch, so that batches can be added before they are averaged."""

    total: Tensor  # what is differentiated, label smoothing included
    surprise: float  # minus the log-probability of what is right, in nats
    tokens: int


@dataclass(frozen=True)
class Assessment:
    """How a model does on the dev set beside its loss, and something to look at."""

    scores: dict[str, float]
    sample: list[tuple[str, str]]  # lines of a label and a text


class Task(ABC):
    """What differs between the tasks while a model is trained; made from a folder that a `Preparation` filled."""

    unit: str  # what is counted
    prints: tuple[str, ...] = ()  # scores that are shown beside the perplexity
    confidence: Confidence | None = None  # known once the dev set is reported on, of what translates

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        self.work, self.settings, self.vocabularies, self.device = work, settings, vocabularies, device

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Rows]:
        """The batches of an epoch, as rows of the training set."""

    @abstractmethod
    def batch(self, rows: Rows, update: int) -> Batch:
        """A batch for the model; what is random in it depends on the number of the update alone."""

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """`batch(rows, update).share(part, parts)`, without making the rest."""
        return self.batch(rows[part::parts], update)

    @abstractmethod
    def dev_batches(self) -> Iterator[Batch]:
        """The whole dev set, always the same."""

    @abstractmethod
    def loss(self, model: Model, batch: Any, smoothing: float) -> Loss:
        """How badly the model predicts what it should."""

    @abstractmethod
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Scores on the dev set, of which the whole surprise is known, and a sample, another one for each `number`."""

    @abstractmethod
    def report(self, contents: Contents, name: str) -> list[str]:
        """The final scores of a held-out set, in lines that say how they were made."""

    def held_out(self, name: str) -> list[dict[str, Any]]:
        """What was put aside under this name, a JSON object a line."""
        lines = (self.work / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]


def write_held_out(path: Path, records: Iterator[dict[str, Any]]) -> None:
    """Writes what `Task.held_out` reads."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


METRICS = {
    "translate": ("chrf", "bleu", "loss"),
    "write": ("loss",),
    "fill": ("loss", "accuracy"),
    "classify": ("accuracy", "f1", "loss"),
}


def require_metric(settings: Settings) -> None:
    """Refuses to watch a score that the task does not have."""
    known = METRICS.get(settings.task, ())
    if known and settings.training.metric not in known:
        raise SettingsError(
            f"training.metric = {settings.training.metric} is not measured for the task {settings.task}: "
            f"use {' or '.join(known)}"
        )


def refuse_start(start: Settings | None, task: str, allowed: tuple[str, ...]) -> None:
    """Refuses to start a task from a model whose weights are of no use for it."""
    if start is not None and start.task not in allowed:
        raise SettingsError(
            f"a model to {start.task} cannot become one to {task}: --from needs one to {' or '.join(allowed)}"
        )
