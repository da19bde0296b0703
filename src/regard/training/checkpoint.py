"""The state of a run on disk: one file, whole or not there, from which training goes on bit by bit the same.

Randomness is not part of it: the order of the data and the dropout of an update depend on nothing but the
seed and the number of the epoch or the update.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.training.mean import RunningMean
from regard.weights import assign, parameters, read_tensors, write_tensors

STATE = "state.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's names for its running means; Muon has the first alone


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

    def ranked(self, metric: str) -> list[int]:
        """The steps that were evaluated, best first; of equals, the earlier."""
        sign = -1 if metric == "loss" else 1
        order = sorted(self.evaluations, key=lambda e: (-sign * e[metric], e["step"]))
        return [int(e["step"]) for e in order]


def save_state(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean, state: State
) -> None:
    """Writes weights, their running mean, moments and position in one atomic file."""
    tensors = {f"model.{name}": tensor for name, tensor in parameters(model).items()}
    tensors |= {f"mean.{name}": tensor for name, tensor in mean.values.items()}
    for name, parameter in model.named_parameters():
        for moment in MOMENTS:
            if moment in optimizer.state.get(parameter, {}):
                tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    write_tensors(folder / STATE, tensors, {"state": json.dumps(asdict(state))})


def load_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, mean: RunningMean) -> State:
    """Puts a saved run back into the model, the optimizer and the mean; a fresh state if nothing was saved."""
    path = folder / STATE
    if not path.exists():
        return State()
    tensors, metadata = read_tensors(path)
    try:
        state = State(**json.loads(metadata["state"]))
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{path}: damaged (its state cannot be read)") from None
    groups: dict[str, dict[str, Tensor]] = {"model": {}, **{moment: {} for moment in MOMENTS}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        groups.setdefault(group, {})[rest] = tensor
    assign(model, groups["model"], path)
    for name, value in mean.values.items():  # switched on since, the mean starts from the weights of now
        value.copy_(groups.get("mean", groups["model"]).get(name, mean.learning[name].data))
    if state.step:
        learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            if id(parameter) not in learning or name not in groups[MOMENTS[0]]:  # frozen, or never given a gradient
                continue
            optimizer.state[parameter] = {
                "step": torch.tensor(float(state.step), device=parameter.device),
                **{m: groups[m][name].to(parameter.device) for m in MOMENTS if name in groups[m]},
            }
    return state


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
