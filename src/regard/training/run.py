"""A training run: the model, its optimizer and data, and where the run stands; everything it needs is in one folder."""

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

from regard.model.dropout import Masks
from regard.model.kernels.compute_mode import computing
from regard.model.transformer import Encoder, Stack
from regard.model_folder import TOKENIZER, TRAINING, WEIGHTS, read_settings
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Rows
from regard.training.checkpoint import State, adopt, load_state, save_state
from regard.training.distributed import Group, require_shardable, whole
from regard.training.events import Note
from regard.training.low_rank_adapters import adapt, merged
from regard.training.machine_checks import set_up_machine, settled
from regard.training.optimizer import build_optimizer
from regard.training.running_mean import RunningMean
from regard.training.tasks.classification import Classifying
from regard.training.tasks.filling import Filling
from regard.training.tasks.task import ABOUT, START, Batch, Task, require_metric
from regard.training.tasks.translation import Translating
from regard.training.tasks.writing import Writing
from regard.weights import Contents, Model, assign, build_model, choose_device, parameters, write_tensors

TASKS: dict[str, type[Task]] = {"translate": Translating, "write": Writing, "fill": Filling, "classify": Classifying}


class Objective(nn.Module):
    """The model and its loss as one module, which is what torch.distributed needs to sum gradients."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, smoothing: float) -> tuple[Tensor, float]:
        """Returns the sums over a batch of the loss and of the surprise (without label smoothing)."""
        loss = self.task.loss(self.model, batch, smoothing)
        return loss.total, loss.surprise


@dataclass
class TrainingRun:
    """What an update needs, and where the run stands."""

    folder: Path
    settings: Settings
    about: dict[str, Any]  # what preparation recorded of the corpus
    vocabularies: Vocabularies
    device: torch.device
    group: Group  # the processes that train together
    stop: threading.Event  # set by a user who wants the run saved and ended
    task: Task
    model: Model
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    mean: RunningMean
    scaler: torch.amp.GradScaler  # of float16 gradients
    state: State
    damage: list[str]  # states that could not be loaded, and why
    parts: int = 1  # in how many parts a batch is computed, because memory is short
    sending: bool = False  # whether other processes may have received gradients of the current update
    notes: list[Note] = field(default_factory=list)  # for the user, not yet shown
    planned: tuple[int, Sequence[Rows]] | None = None  # the batches of an epoch
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def work(self) -> Path:
        """The folder of what only training needs."""
        return self.folder / TRAINING

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns the batches of an epoch, planned once."""
        if self.planned is None or self.planned[0] != epoch:
            self.planned = (epoch, self.task.plan(epoch))
        return self.planned[1]

    def contents(self, model: Model) -> Contents:
        """Returns what a model folder holds, for evaluation."""
        return Contents(self.settings, self.vocabularies, model)

    @contextmanager
    def forward_mode(self, masks: Masks | None = None) -> Iterator[None]:
        """Sets the precision of a forward pass and, while training, its dropout masks."""
        kind, on_cpu = self.settings.training.precision, self.device.type == "cpu"
        plain = on_cpu or kind == "float32"
        autocast = nullcontext() if plain else torch.autocast(self.device.type, getattr(torch, kind))
        with computing(bfloat16=on_cpu and kind == "bfloat16", masks=masks), autocast:
            yield

    @contextmanager
    def whole_model(self, *, mean: bool = True) -> Iterator[Model]:
        """Gathers the model with all its weights, or the running mean of them, in the first process.

        Where each process holds a part of the weights, all processes must call this. The model must not be changed.
        """
        with self.mean.in_place() if mean else nullcontext():
            if not self.group.sharded:
                yield self.model
                return
            weights: dict[str, Tensor] = {}
            for name, parameter in parameters(self.model).items():
                full = whole(parameter)
                if self.group.first:
                    weights[name] = full
            model = self.model
            if self.group.first:
                model = build_model(self.settings, self.vocabularies).to(self.device)
                assign(model, weights, self.work)
            yield model

    def save(self) -> None:
        """Writes the state from which `regard train --resume` goes on bit for bit the same."""
        self.state.scaler = self.scaler.state_dict()
        save_state(self.work, self.model, self.optimizer, self.mean, self.state, self.group)
        self.saved_at = time.monotonic()

    def write_first_weights(self) -> None:
        """Makes the model folder usable before the first evaluation."""
        with self.whole_model(mean=False) as model:
            if self.group.first and not (self.folder / WEIGHTS).exists():
                write_tensors(self.folder / WEIGHTS, merged(model))


def open_run(
    folder: Path,
    stop: threading.Event | None = None,
    group: Group | None = None,
    vocabularies: Vocabularies | None = None,
) -> TrainingRun:
    """Opens the run in a prepared folder, at the state that it was last saved in."""
    group, work = group or Group(), folder / TRAINING
    recorded = read_settings(folder)
    device = group.device(choose_device(recorded.training.device))
    settings = settled(recorded, device)
    training = settings.training
    about = json.loads((work / ABOUT).read_text(encoding="utf-8"))
    vocabularies = vocabularies or Vocabularies.load(folder / TOKENIZER)
    require_metric(settings)
    task = TASKS[settings.task](work, settings, vocabularies, device)
    set_up_machine(training, device, group.here)
    torch.manual_seed(training.seed)
    model = build_model(settings, vocabularies).to(device)
    if (work / START).exists():
        new = adopt(work / START, model, about.get("leave"))
        if training.adapters:
            adapt(model, training.adapters, new)
    objective = distribute(model, task, settings, group, device)
    optimizer = build_optimizer(model, training, group)
    mean = RunningMean(model, training.ema)
    state, damage = load_state(work, model, optimizer, mean, group)
    scaler = torch.amp.GradScaler(enabled=training.precision == "float16")
    scaler.load_state_dict(state.scaler)
    stop = stop or threading.Event()
    return TrainingRun(
        folder, settings, about, vocabularies, device, group, stop, task, model, objective, optimizer, mean, scaler,
        state, damage,
    )  # fmt: skip


def distribute(model: Model, task: Task, settings: Settings, group: Group, device: torch.device) -> nn.Module:
    """Returns the model and its loss, spread over the processes that train together."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.recomputes = settings.training.recompute
    if group.size > 1:
        require_shardable(settings.training, group)
    layers = [layer for stack in stacks for layer in stack.layers]
    idle = isinstance(model, Encoder) and model.pooler is not None
    return group.wrap(Objective(model, task), layers, device, settings.training.parallel, idle)
