"""The state of a run on disk, from which training goes on bit by bit the same.

A state is one file or, where each process holds a part of the weights, one of each: `state-00000024.safetensors`,
`state-00000024-1-of-2.safetensors`. Every file is whole or not there, and has its own checksum in it. The last two
states are kept: should the newest be damaged, the run goes on from the one before. Any number of processes can read
what any number has written.

Randomness is not part of it: the order of the data and the dropout of an update depend on nothing but the seed, the
number of the epoch or the update, and the process.
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
from regard.training.distributed import Group, first_row, held
from regard.training.running_mean import RunningMean
from regard.weights import parameters, read_tensors, write_tensors

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's names for its running means; Muon has the first alone
KEPT = 2
OLD = "state.safetensors"  # the name of the only state of a run from before states had checksums
CHECKSUM = "checksum"
ALONE = Group()


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    tokens: int = 0  # target tokens learned from
    seconds: float = 0.0
    evaluations: list[dict[str, float]] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)  # of float16 gradients

    def ranked(self, metric: str, evaluations: int | None = None) -> list[int]:
        """The steps that were evaluated, best first; of equals, the earlier. Of the first so many, if given."""
        sign = -1 if metric == "loss" else 1
        order = sorted(self.evaluations[:evaluations], key=lambda e: (-sign * e[metric], e["step"]))
        return [int(e["step"]) for e in order]


def save_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean,
    state: State,
    group: Group = ALONE,
) -> None:
    """Writes weights, their running mean, moments and position; then forgets what is older than the state before."""
    if group.first or group.sharded:
        tensors = dict(_tensors(model, optimizer, mean))
        rows = {name: first_row(parameter) for name, parameter in model.named_parameters()}
        metadata = {"state": json.dumps(asdict(state)), "rows": json.dumps(rows)}
        parts = group.size if group.sharded else 1
        write_sealed(state_path(folder, state.step, group.rank + 1, parts), tensors, metadata)
    group.total(0)  # all parts are there
    if group.first:
        for files in [*_states(folder).values()][KEPT:]:
            for path in files:
                path.unlink(missing_ok=True)


def load_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: RunningMean,
    group: Group = ALONE,
) -> tuple[State, list[str]]:
    """Puts a saved run back into the model, the optimizer and the mean, and tells what was wrong with newer ones.

    A fresh state if nothing was saved.
    """
    told: list[str] = []
    states = _states(folder)
    for step, files in states.items():
        damage = [f"{path}: {why}" for path in files[group.rank :: group.size] if (why := damage_of(path))]
        if not sum(group.total(len(damage))):
            return _put_back(files, model, optimizer, mean), told
        told += damage or [f"{folder}: the state of step {step:,} is damaged, says another process"]
    if told:
        raise ModelError(
            f"{told[0]}, and no state before it is left: remove {folder / 'state-*'} to begin again from the first step"
        )
    return State(), told


def _put_back(files: Sequence[Path], model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean) -> State:
    """Reads a state that is known to be whole."""
    saved = Saved(files)
    own = dict(model.named_parameters())
    saved.require(own)
    with torch.no_grad():
        for name, parameter in own.items():
            saved.fill(held(parameter), f"model.{name}", first_row(parameter))
        for name, value in mean.values.items():  # switched on since, the mean starts from the weights of now
            kept = f"mean.{name}"
            saved.fill(value, kept if kept in saved.places else f"model.{name}", first_row(mean.learning[name]))
    learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in own.items():  # frozen, or never given a gradient: no moments
        moments = [moment for moment in MOMENTS if f"{moment}.{name}" in saved.places]
        if id(parameter) not in learning or not moments or not saved.state.step:
            continue
        optimizer.state[parameter] = {"step": torch.tensor(float(saved.state.step), device=parameter.device)}
        for moment in moments:
            empty = torch.zeros_like(parameter, requires_grad=False)
            saved.fill(held(empty), f"{moment}.{name}", first_row(parameter))
            optimizer.state[parameter][moment] = empty
    return saved.state


class Saved:
    """The files of a state, from which any rows of any tensor can be read."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = [(path, safe_open(path, "pt")) for path in files]
        self.places: dict[str, list[tuple[int, Any]]] = {}  # of each tensor, first rows and the files they are in
        metadata = {path: file.metadata() or {} for path, file in self.files}
        for path, file in self.files:
            rows = json.loads(metadata[path].get("rows", "{}"))
            for name in file.keys():  # noqa: SIM118
                self.places.setdefault(name, []).append((rows.get(name.partition(".")[2], 0), file))
        try:
            self.state = State(**json.loads(metadata[files[0]]["state"]))
        except (KeyError, TypeError, ValueError):
            raise ModelError(f"{files[0]}: damaged (its state cannot be read)") from None

    def require(self, wanted: Mapping[str, Tensor]) -> None:
        """Refuses the state of another model: every weight is there, with all its rows, and no other is."""
        there = {name.removeprefix("model."): name for name in self.places if name.startswith("model.")}
        path = self.files[0][0]
        for name in (*wanted, *there):
            if name not in there:
                raise ModelError(f"{path}: the tensor {name} is missing")
            if name not in wanted:
                raise ModelError(f"{path}: has the tensor {name}, which this model does not have")
            pieces = [file.get_slice(there[name]).get_shape() for _, file in self.places[there[name]]]
            shape = (sum(piece[0] for piece in pieces), *pieces[0][1:])
            if shape != tuple(wanted[name].shape):
                raise ModelError(
                    f"{path}: the tensor {name} has the shape {shape} instead of {tuple(wanted[name].shape)}"
                )

    def fill(self, tensor: Tensor, name: str, first: int) -> None:
        """Fills in a tensor that begins with row `first` of the saved one."""
        for start, file in self.places[name]:
            piece = file.get_slice(name)
            low, high = max(first, start), min(first + len(tensor), start + piece.get_shape()[0])
            if low < high:
                tensor[low - first : high - first] = piece[low - start : high - start].to(tensor.device)


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean) -> Iterator[tuple[str, Tensor]]:
    """What this process holds of all that is saved, by name."""
    for name, tensor in parameters(model).items():
        yield f"model.{name}", held(tensor)
    for name, tensor in mean.values.items():
        yield f"mean.{name}", tensor
    for name, parameter in model.named_parameters():
        for moment in MOMENTS:
            if moment in optimizer.state.get(parameter, {}):
                yield f"{moment}.{name}", held(optimizer.state[parameter][moment])


def newest_state(folder: Path) -> State | None:
    """Returns where the run stood when it was saved last, without reading its weights; none if that is damaged."""
    files = next(iter(_states(folder).values()), None)
    try:
        return None if files is None else Saved(files[:1]).state
    except (OSError, SafetensorError, ModelError):
        return None


def state_path(folder: Path, step: int, part: int = 1, parts: int = 1) -> Path:
    return folder / (f"state-{step:08d}" + (f"-{part}-of-{parts}" if parts > 1 else "") + ".safetensors")


def _states(folder: Path) -> dict[int, list[Path]]:
    """The states of which all files are there, by their steps, the newest first."""
    found: dict[tuple[int, int], dict[int, Path]] = {}
    for path in folder.glob("state-*.safetensors"):
        name = re.fullmatch(r"state-(\d+)(?:-(\d+)-of-(\d+))?\.safetensors", path.name)
        if name is not None:
            found.setdefault((int(name[1]), int(name[3] or 1)), {})[int(name[2] or 1)] = path
    whole = {key[0]: [p for _, p in sorted(files.items())] for key, files in found.items() if len(files) == key[1]}
    states = dict(sorted(whole.items(), reverse=True))
    return states | ({-1: [folder / OLD]} if (folder / OLD).exists() else {})


# Files that know whether they are whole


def write_sealed(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file atomically, with a checksum of all that is in it."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(path, plain, {**(metadata or {}), CHECKSUM: checksum(plain, metadata or {})})


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """CRC-32 of names, types, shapes, numbers and metadata."""
    told = {name: value for name, value in sorted(metadata.items()) if name != CHECKSUM}
    found = zlib.crc32(json.dumps(told).encode())
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), found)
        if tensor.numel():
            found = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, found)
    return f"{found:08x}"


def damage_of(path: Path) -> str:
    """What is wrong with a sealed file, or nothing; a file from before there were checksums is believed."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        return f"damaged or unreadable ({error})"
    if CHECKSUM in metadata and metadata[CHECKSUM] != checksum(tensors, metadata):
        return "damaged (its checksum is not that of its content)"
    return "" if CHECKSUM in metadata or path.name == OLD else "damaged (it has no checksum)"


def adopt(path: Path, model: nn.Module, leave: str | None = None) -> list[str]:
    """Starts a model from the weights of another: those of the same name and shape; returns the names of the rest.

    Names that begin with `leave` are left as they are.
    """
    tensors, _ = read_tensors(path)
    wanted, left = parameters(model), []
    with torch.no_grad():
        for name, parameter in wanted.items():
            own = leave is not None and name.startswith(leave)
            if not own and name in tensors and tensors[name].shape == parameter.shape:
                parameter.copy_(tensors[name])
            else:
                left.append(name)
    return left


def snapshot_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def prune_snapshots(folder: Path, keep: Sequence[int]) -> None:
    """Deletes the weights of evaluated steps that are not among the best."""
    wanted = {snapshot_path(folder, step) for step in keep}
    for path in folder.glob("step-*.safetensors"):
        if path not in wanted:
            path.unlink()


def average(folder: Path, steps: Sequence[int]) -> dict[str, Tensor]:
    """The mean of the weights of these steps (Vaswani et al., 2017, section 6.1)."""
    total: dict[str, Tensor] = {}
    for step in sorted(steps):
        tensors, _ = read_tensors(snapshot_path(folder, step))
        for name, tensor in tensors.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(steps)).float() for name, tensor in total.items()}
