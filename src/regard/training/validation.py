"""Evaluates the model on the dev set during training, and keeps snapshots of the weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.decoding.writer import perplexity
from regard.model_folder import HISTORY
from regard.training.checkpoint import write_sealed
from regard.training.events import Evaluation
from regard.training.low_rank_adapters import merged_weights
from regard.training.run import TrainingRun
from regard.training.tasks.task import Assessment
from regard.weights import Model, read_tensors, write_tensors

FIRST_MOMENT = 0.01
"""Position of the first history snapshot after step 0, as a share of the run; later ones are spaced geometrically."""


def is_due(run: TrainingRun) -> bool:
    """Reports whether the weights of this step must still be evaluated."""
    training, step = run.settings.training, run.state.step
    due = step > 0 and (step % training.evaluate_every == 0 or step == training.steps)
    return due and not any(evaluation["step"] == step for evaluation in run.state.evaluations)


def evaluate(run: TrainingRun) -> Evaluation:
    """Scores the model on the dev set; saves the run, and the weights if they are the best so far."""
    training, state, first = run.settings.training, run.state, run.group.first
    started = time.perf_counter()
    with run.whole_model() as model:
        scores, sample = run.group.broadcast(dev_scores(run, model, len(state.evaluations)) if first else None)
        state.evaluations.append({"step": state.step, **scores})
        best_steps = state.ranked(training.metric)
        is_best = best_steps[0] == state.step
        if first and state.step in best_steps[: training.average]:
            write_sealed(snapshot_path(run.work, state.step), merged_weights(model))
        if first and is_best:
            run.write_weights(model)
    run.save()
    run.evaluation_seconds = time.perf_counter() - started
    if first:  # keep the snapshots that the previous state needs, too
        before = state.ranked(training.metric, len(state.evaluations) - 1)
        prune_snapshots(run.work, best_steps[: training.average] + before[: training.average])
    shown = {name: scores[name] for name in run.task.shown_scores}
    return Evaluation(state.step, scores["loss"], perplexity(scores["loss"]), shown, is_best, sample, state.seconds)


def dev_scores(run: TrainingRun, model: Model, number: int) -> Assessment:
    """Returns the dev loss in nats per token with the task's scores, and sample number `number`."""
    model.eval()
    surprise = tokens = 0.0
    with torch.no_grad():
        for batch in run.task.dev_batches():
            with run.forward_mode():
                loss = run.task.loss(model, batch, 0.0)
            surprise, tokens = surprise + loss.surprise, tokens + loss.tokens
    scores, sample = run.task.assess(run.contents(model), surprise, number)
    model.train()
    return {"loss": surprise / tokens, **scores}, sample


# Snapshots of single steps: the best ones for the final average, and a history for the explorer


def snapshot_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def prune_snapshots(folder: Path, keep: Sequence[int]) -> None:
    wanted = {snapshot_path(folder, step) for step in keep}
    for path in folder.glob("step-*.safetensors"):
        if path not in wanted:
            path.unlink()


def delete_snapshots_after(folder: Path, step: int) -> None:
    for path in folder.glob("step-*.safetensors"):
        if path > snapshot_path(folder, step):
            path.unlink()


def average_snapshots(folder: Path, steps: Sequence[int]) -> dict[str, Tensor]:
    """Averages the weights of these steps (Vaswani et al., 2017, section 6.1)."""
    total: dict[str, Tensor] = {}
    for step in sorted(steps):
        tensors, _ = read_tensors(snapshot_path(folder, step))
        for name, tensor in tensors.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(steps)).float() for name, tensor in total.items()}


def history_steps(count: int, steps: int) -> list[int]:
    """Returns at most `count` steps of a run: step 0, then geometrically spaced ones."""
    if count <= 2:
        return [0, steps][2 - count :]
    spaced = (round(steps * FIRST_MOMENT ** (1 - i / (count - 2))) for i in range(count - 1))
    return sorted({0, steps, *spaced})


def keep_in_history(run: TrainingRun, *, last: bool = False) -> None:
    """Saves the weights in half precision if this is the last step or a step of `training.history`."""
    count, step = run.settings.training.history, run.state.step
    if count and (last or step in history_steps(count, run.settings.training.steps)):
        with run.whole_model(mean=False) as model:
            if run.group.first:
                weights = {name: tensor.half() for name, tensor in merged_weights(model).items()}
                write_tensors(snapshot_path(run.folder / HISTORY, step), weights)
