"""Saves and restores the state of a run, from which training continues bit for bit the same.

A state is one file or, if each process holds a part of the weights, one file per process:
`state-00000024.safetensors`, `state-00000024-1-of-2.safetensors`. Each file is written atomically and contains its own
checksum. The last two states are kept: if the newest one is damaged, the run continues from the one before. A run can
resume with a different number of processes.

A state contains no random numbers, because the order of the data and the dropout masks depend only on the seed, the
epoch or update number, and the process.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regard.errors import ModelError
from regard.training.distributed import ProcessGroup, first_row, local_part
from regard.training.weight_running_mean import RunningMean
from regard.weights import parameters, read_tensors, require_shapes, write_tensors

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's names for its running means; Muon has only the first
STATES_KEPT = 2
OLD_STATE = "state.safetensors"  # name of the single state in older versions, which had no checksums
CHECKSUM = "checksum"
ONE_PROCESS = ProcessGroup()


@dataclass
class State:
    """The progress of a run."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # number of batches of this epoch already used
    tokens: int = 0  # number of target tokens trained on
    seconds: float = 0.0
    evaluations: list[dict[str, float]] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)  # state of the gradient scaler for float16

    def ranked(self, metric: str, first: int | None = None) -> list[int]:
        """Returns the steps of all evaluations, or of the `first` ones, best first; ties go to the earlier step."""
        sign = -1 if metric == "loss" else 1
        order = sorted(self.evaluations[:first], key=lambda e: (-sign * e[metric], e["step"]))
        return [int(e["step"]) for e in order]


def save_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean,
    state: State,
    group: ProcessGroup = ONE_PROCESS,
) -> None:
    """Writes weights, running mean, optimizer moments and progress; then deletes all but the last two states."""
    if group.first or group.sharded:
        rows = {name: first_row(parameter) for name, parameter in model.named_parameters()}
        metadata = {"state": json.dumps(asdict(state)), "rows": json.dumps(rows)}
        path = state_path(folder, state.step, group.rank + 1, group.size if group.sharded else 1)
        write_sealed(path, dict(_tensors(model, optimizer, mean)), metadata)
    group.sum(0)  # wait until all processes have written
    if group.first:
        for files in [*_states(folder).values()][STATES_KEPT:]:
            for path in files:
                path.unlink(missing_ok=True)


def load_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean,
    group: ProcessGroup = ONE_PROCESS,
) -> tuple[State, list[str]]:
    """Restores the newest undamaged state, or returns a new one if nothing was saved.

    Also returns a message for each damaged file.
    """
    messages: list[str] = []
    for step, files in _states(folder).items():
        damage = [f"{path}: {why}" for path in files[group.rank :: group.size] if (why := find_damage(path))]
        if not sum(group.sum(len(damage))):
            return _restore(files, model, optimizer, mean), messages
        messages += damage or [f"{folder}: another process reports that the state of step {step:,} is damaged"]
    if messages:
        raise ModelError(
            f"{messages[0]}, and there is no earlier state: to start again from the first step, remove "
            f"{folder / 'state-*'}"
        )
    return State(), messages


def _restore(files: Sequence[Path], model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean) -> State:
    saved = StateFiles(files)
    own = dict(model.named_parameters())
    require_shapes({name: tuple(parameter.shape) for name, parameter in own.items()}, saved.shapes(), saved.path)
    with torch.no_grad():
        for name, parameter in own.items():
            saved.fill(local_part(parameter), f"model.{name}", first_row(parameter))
        for name, value in mean.values.items():  # start from the weights if training.ema was off before
            origin = f"mean.{name}" if f"mean.{name}" in saved.pieces else f"model.{name}"
            saved.fill(value, origin, first_row(mean.learning[name]))
    learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in own.items():
        moments = [moment for moment in MOMENTS if f"{moment}.{name}" in saved.pieces]
        if id(parameter) not in learning or not moments or not saved.state.step:
            continue  # the parameter is frozen or never had a gradient
        optimizer.state[parameter] = {"step": torch.tensor(float(saved.state.step), device=parameter.device)}
        for moment in moments:
            value = torch.zeros_like(parameter, requires_grad=False)
            saved.fill(local_part(value), f"{moment}.{name}", first_row(parameter))
            optimizer.state[parameter][moment] = value
    return saved.state


class StateFiles:
    """The files of one saved state, from which any rows of any tensor can be read."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.path = files[0]
        self.pieces: dict[str, list[tuple[int, Any]]] = {}  # first row and file of each piece of each tensor
        for path in files:
            file = safe_open(path, "pt")
            metadata = file.metadata() or {}
            rows = json.loads(metadata.get("rows", "{}"))
            for name in file.keys():  # noqa: SIM118
                self.pieces.setdefault(name, []).append((rows.get(name.partition(".")[2], 0), file))
            if path == self.path:
                try:
                    self.state = State(**json.loads(metadata["state"]))
                except (KeyError, TypeError, ValueError):
                    raise ModelError(f"{path}: damaged (cannot read the progress of the run)") from None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the full shape of each weight."""
        shapes = {}
        for name in self.pieces:
            if name.startswith("model."):
                pieces = [file.get_slice(name).get_shape() for _, file in self.pieces[name]]
                shapes[name.removeprefix("model.")] = (sum(each[0] for each in pieces), *pieces[0][1:])
        return shapes

    def fill(self, tensor: Tensor, name: str, first: int) -> None:
        """Fills `tensor` with rows of the saved tensor `name`, starting from row `first`."""
        for start, file in self.pieces[name]:
            piece = file.get_slice(name)
            low, high = max(first, start), min(first + len(tensor), start + piece.get_shape()[0])
            if low < high:
                tensor[low - first : high - first] = piece[low - start : high - start].to(tensor.device)


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in parameters(model).items():
        yield f"model.{name}", local_part(tensor)
    for name, tensor in mean.values.items():
        yield f"mean.{name}", tensor
    for name, parameter in model.named_parameters():
        for moment in MOMENTS:
            if moment in optimizer.state.get(parameter, {}):
                yield f"{moment}.{name}", local_part(optimizer.state[parameter][moment])


def newest_state(folder: Path) -> State | None:
    """Returns the newest state without reading the weights; None if it is missing or damaged."""
    files = next(iter(_states(folder).values()), None)
    try:
        return None if files is None else StateFiles(files[:1]).state
    except (OSError, SafetensorError, ModelError):
        return None


def state_path(folder: Path, step: int, part: int = 1, parts: int = 1) -> Path:
    return folder / (f"state-{step:08d}" + (f"-{part}-of-{parts}" if parts > 1 else "") + ".safetensors")


def _states(folder: Path) -> dict[int, list[Path]]:
    """Maps the step of each complete state to its files, newest first."""
    files: dict[tuple[int, int], dict[int, Path]] = {}
    for path in folder.glob("state-*.safetensors"):
        if name := re.fullmatch(r"state-(\d+)(?:-(\d+)-of-(\d+))?\.safetensors", path.name):
            files.setdefault((int(name[1]), int(name[3] or 1)), {})[int(name[2] or 1)] = path
    complete = {step: each for (step, parts), each in files.items() if len(each) == parts}
    states = {
        step: [complete[step][part] for part in sorted(complete[step])] for step in sorted(complete, reverse=True)
    }
    return states | ({-1: [folder / OLD_STATE]} if (folder / OLD_STATE).exists() else {})


def write_sealed(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, plain, {**(metadata or {}), CHECKSUM: checksum(plain, metadata or {})})


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Returns the CRC-32 of the tensors (names, types, shapes and values) and the metadata."""
    others = {name: value for name, value in sorted(metadata.items()) if name != CHECKSUM}
    value = zlib.crc32(json.dumps(others).encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        if tensor.numel():
            value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def find_damage(path: Path) -> str:
    """Describes the damage to a file of `write_sealed`; returns an empty string if it is intact."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        return f"damaged or unreadable ({error})"
    if CHECKSUM in metadata and metadata[CHECKSUM] != checksum(tensors, metadata):
        return "damaged (the checksum does not match the content)"
    return "" if CHECKSUM in metadata or path.name == OLD_STATE else "damaged (it has no checksum)"


def load_matching_weights(path: Path, model: nn.Module, skip: str | None = None) -> list[str]:
    """Copies the weights in a file that match the model's in name and shape; returns the names of all others.

    Weights whose names begin with `skip` are not copied.
    """
    tensors, _ = read_tensors(path)
    others = []
    with torch.no_grad():
        for name, parameter in parameters(model).items():
            skipped = skip is not None and name.startswith(skip)
            if not skipped and name in tensors and tensors[name].shape == parameter.shape:
                parameter.copy_(tensors[name])
            else:
                others.append(name)
    return others
