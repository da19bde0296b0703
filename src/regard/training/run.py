"""A training run: the model, its optimizer, its data and its progress, opened from a folder."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import SettingsError
from regard.model.dropout import Masks
from regard.model.kernels.compute_mode import computing
from regard.model.transformer import Encoder, Stack
from regard.model_folder import CANARY, TOKENIZER, TRAINING, WEIGHTS, read_settings
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Batch, Rows
from regard.training.checkpoint import State, load_matching_weights, load_state, save_state
from regard.training.distributed import ProcessGroup, full_tensor, require_shardable
from regard.training.events import Note
from regard.training.low_rank_adapters import add_adapters, merged_weights
from regard.training.machine_setup import choose_precision, set_up_machine
from regard.training.optimizer import build_optimizer
from regard.training.tasks.classification import ClassificationTraining
from regard.training.tasks.filling import FillingTraining
from regard.training.tasks.task import ABOUT, START, Task
from regard.training.tasks.translation import TranslationTraining
from regard.training.tasks.writing import WritingTraining
from regard.training.weight_running_mean import RunningMean
from regard.weights import Contents, Model, assign, build_model, choose_device, parameters, write_weights

TASKS: dict[str, type[Task]] = {
    "translate": TranslationTraining,
    "write": WritingTraining,
    "fill": FillingTraining,
    "classify": ClassificationTraining,
}


class Objective(nn.Module):
    """The model and its loss as one module, which torch.distributed needs to synchronize gradients."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, smoothing: float) -> tuple[Tensor, float]:
        """Returns the sums of the loss and of the surprise (the loss without label smoothing) over a batch."""
        loss = self.task.loss(self.model, batch, smoothing)
        return loss.total, loss.surprise


@dataclass
class TrainingRun:
    """Everything that an update needs, and the progress of the run."""

    folder: Path
    settings: Settings
    about: dict[str, Any]  # facts about the corpus, recorded during preparation
    vocabularies: Vocabularies
    device: torch.device
    group: ProcessGroup  # the processes that train together
    stop: threading.Event  # set it to save and end the run
    task: Task
    model: Model
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    mean: RunningMean
    scaler: torch.amp.GradScaler  # scales the gradients of float16
    state: State
    notes: list[Note]  # notes not yet yielded as events
    parts: int = 1  # number of parts in which each batch is computed, to save memory
    gradients_sent: bool = False  # whether other processes may have received gradients of the current update
    planned: tuple[int, Sequence[Rows]] | None = None  # an epoch and its batches
    saved_at: float = field(default_factory=time.perf_counter)
    save_seconds: float = 0.0  # duration of the last save
    evaluation_seconds: float = 0.0  # duration of the last evaluation

    @property
    def work(self) -> Path:
        return self.folder / TRAINING

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch, which are planned only once."""
        if self.planned is None or self.planned[0] != epoch:
            self.planned = (epoch, self.task.plan(epoch))
        return self.planned[1]

    def contents(self, model: Model) -> Contents:
        return Contents(self.settings, self.vocabularies, model)

    @contextmanager
    def forward_mode(self, masks: Masks | None = None) -> Iterator[None]:
        """Sets the precision and the dropout masks of the forward passes in the block."""
        precision, on_cpu = self.settings.training.precision, self.device.type == "cpu"
        plain = on_cpu or precision == "float32"
        autocast = nullcontext() if plain else torch.autocast(self.device.type, getattr(torch, precision))
        with computing(bfloat16=on_cpu and precision == "bfloat16", masks=masks), autocast:
            yield

    @contextmanager
    def whole_model(self, *, mean: bool = True) -> Iterator[Model]:
        """Yields the model with complete weights (or their running mean) in the first process.

        If each process holds a part of the weights, all processes must call this. Do not modify the model.
        """
        with self.mean.applied() if mean else nullcontext():
            model, weights = self.model, dict[str, Tensor]()
            if self.group.sharded:
                for name, parameter in parameters(self.model).items():
                    weight = full_tensor(parameter)
                    if self.group.first:  # the other processes do not need to keep it
                        weights[name] = weight
            if weights:
                model = build_model(self.settings, self.vocabularies).to(self.device)
                assign(model, weights, self.work)
            yield model

    def save(self) -> None:
        """Writes the state from which `regard train --resume` continues bit for bit the same."""
        started = time.perf_counter()
        self.state.scaler = self.scaler.state_dict()
        save_state(self.work, self.model, self.optimizer, self.mean, self.state, self.group)
        self.saved_at = time.perf_counter()
        self.save_seconds = self.saved_at - started

    def write_weights(self, model: Model) -> None:
        """Writes the weights of the model folder, and deletes the example outputs of the previous weights."""
        (self.folder / CANARY).unlink(missing_ok=True)
        write_weights(self.folder, merged_weights(model))

    def write_first_weights(self) -> None:
        """Makes the model folder usable before the first evaluation."""
        with self.whole_model(mean=False) as model:
            if self.group.first and not (self.folder / WEIGHTS).exists():
                self.write_weights(model)


def open_run(
    folder: Path,
    stop: threading.Event | None = None,
    group: ProcessGroup | None = None,
    vocabularies: Vocabularies | None = None,
) -> TrainingRun:
    """Opens the run in a prepared folder, in its last saved state."""
    group, work = group or ProcessGroup(), folder / TRAINING
    recorded = read_settings(folder)
    device = group.device(choose_device(recorded.training.device))
    settings = choose_precision(recorded, device)
    training = settings.training
    vocabularies = vocabularies or Vocabularies.load(folder / TOKENIZER)
    require_metric(settings)
    task = TASKS[settings.task](work, settings, vocabularies, device)
    set_up_machine(training, device, group.local_size)
    about = read_about(work)
    torch.manual_seed(training.seed)
    model = build_model(settings, vocabularies).to(device)
    if (work / START).exists():
        new = load_matching_weights(work / START, model, about.get("leave"))
        if training.adapters:
            add_adapters(model, training.adapters, new)
    objective = distribute(model, task, settings, group, device)
    optimizer = build_optimizer(model, training, group)
    mean = RunningMean(model, training.ema)
    state, damage = load_state(work, model, optimizer, mean, group)
    notes = [Note(f"{line}: continuing from step {state.step:,} instead") for line in damage]
    scaler = torch.amp.GradScaler(enabled=training.precision == "float16")
    scaler.load_state_dict(state.scaler)
    stop = stop or threading.Event()
    return TrainingRun(
        folder, settings, about, vocabularies, device, group, stop, task, model, objective, optimizer, mean, scaler,
        state, notes,
    )  # fmt: skip


def require_metric(settings: Settings) -> None:
    """Raises SettingsError if training.metric is not available for the task."""
    task, metric = settings.task, settings.training.metric
    if task in TASKS and metric not in TASKS[task].metrics:
        known = " or ".join(TASKS[task].metrics)
        raise SettingsError(f"training.metric = {metric} is not available for the task {task}: use {known}")


def read_about(work: Path) -> dict[str, Any]:
    """Returns the facts about the corpus that preparation recorded."""
    about: dict[str, Any] = json.loads((work / ABOUT).read_text(encoding="utf-8"))
    if report := about.pop("report", None):  # written by earlier versions
        dropped = ((count, kind, ", ".join(report["examples"][kind])) for kind, count in report["counts"].items())
        about["corpus"] = [f"{report['read']:,} {report['unit']} read, {report['kept']:,} kept"]
        about["corpus"] += [f"{count:,} left out: {kind} ({places})" for count, kind, places in dropped]
    return about


def distribute(model: Model, task: Task, settings: Settings, group: ProcessGroup, device: torch.device) -> nn.Module:
    """Combines the model and its loss, distributed over the processes that train together."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.recomputes = settings.training.recompute
    if group.size > 1:
        require_shardable(settings.training, group)
    layers = [layer for stack in stacks for layer in stack.layers]
    unused_weights = isinstance(model, Encoder) and model.pooler is not None
    return group.wrap(Objective(model, task), layers, device, settings.training.parallel, unused_weights)
