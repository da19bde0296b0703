"""Weights kept along the way, so that one can look at the same sentence at several moments of training."""

from __future__ import annotations

from pathlib import Path

from regard.model_folder import HISTORY
from regard.settings import TrainingSettings
from regard.training.checkpoint import snapshot_path
from regard.training.low_rank_adapters import merged
from regard.training.run import TrainingRun
from regard.weights import write_tensors

FIRST = 0.01
"""The share of a run that is over at the first moment after step 0; from there each is the same factor later."""


def moments(count: int, steps: int) -> list[int]:
    """`count` steps of a run, or fewer in a short one: 0, and geometrically spaced ones, closest in the beginning."""
    if count <= 2:
        return [0, steps][2 - count :]
    spaced = (round(steps * FIRST ** (1 - i / (count - 2))) for i in range(count - 1))
    return sorted({0, steps, *spaced})


def is_moment(settings: TrainingSettings, step: int, last: bool = False) -> bool:
    """Whether the weights of this step are kept: those of the last one are, if any."""
    return bool(settings.history) and (last or step in moments(settings.history, settings.steps))


def keep_snapshot(run: TrainingRun, *, last: bool = False) -> None:
    """Keeps the weights at half precision for later looks, if this step is one of the moments to keep."""
    if is_moment(run.settings.training, run.state.step, last):
        with run.whole_model(mean=False) as model:
            if run.group.first:
                weights = {name: tensor.half() for name, tensor in merged(model).items()}
                write_tensors(snapshot_path(run.folder / HISTORY, run.state.step), weights)


def forget_after(folder: Path, step: int) -> None:
    """Deletes what was kept after the step that a run goes on from."""
    for path in (folder / HISTORY).glob("step-*.safetensors"):
        if path > snapshot_path(folder / HISTORY, step):
            path.unlink()
