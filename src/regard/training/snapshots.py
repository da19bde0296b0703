"""Weights of single steps: the best for the final average, and a history to look at in the explorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.model_folder import HISTORY
from regard.training.low_rank_adapters import merged_weights
from regard.training.run import TrainingRun
from regard.weights import read_tensors, write_tensors

FIRST_MOMENT = 0.01
"""The first moment of the history after step 0, as a share of the run; later ones follow in equal ratios."""


def snapshot_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def prune_snapshots(folder: Path, keep: Sequence[int]) -> None:
    """Deletes the weights of evaluated steps that are not among the best."""
    wanted = {snapshot_path(folder, step) for step in keep}
    for path in folder.glob("step-*.safetensors"):
        if path not in wanted:
            path.unlink()


def delete_snapshots_after(folder: Path, step: int) -> None:
    """Deletes the weights of all steps after this one."""
    for path in folder.glob("step-*.safetensors"):
        if path > snapshot_path(folder, step):
            path.unlink()


def average_snapshots(folder: Path, steps: Sequence[int]) -> dict[str, Tensor]:
    """Returns the mean of the weights of these steps (Vaswani et al., 2017, section 6.1)."""
    total: dict[str, Tensor] = {}
    for step in sorted(steps):
        tensors, _ = read_tensors(snapshot_path(folder, step))
        for name, tensor in tensors.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(steps)).float() for name, tensor in total.items()}


def history_steps(count: int, steps: int) -> list[int]:
    """Returns at most `count` steps of a run: 0, and then geometrically spaced ones, closest at the beginning."""
    if count <= 2:
        return [0, steps][2 - count :]
    spaced = (round(steps * FIRST_MOMENT ** (1 - i / (count - 2))) for i in range(count - 1))
    return sorted({0, steps, *spaced})


def keep_in_history(run: TrainingRun, *, last: bool = False) -> None:
    """Writes the weights of this step at half precision, if it is the last one or training.history includes it."""
    count, step = run.settings.training.history, run.state.step
    if count and (last or step in history_steps(count, run.settings.training.steps)):
        with run.whole_model(mean=False) as model:
            if run.group.first:
                weights = {name: tensor.half() for name, tensor in merged_weights(model).items()}
                write_tensors(snapshot_path(run.folder / HISTORY, step), weights)
