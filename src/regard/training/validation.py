"""Evaluation on the dev set during training."""

from __future__ import annotations

import time

import torch

from regard.decoding.writer import perplexity
from regard.training.checkpoint import write_sealed
from regard.training.events import Evaluation
from regard.training.low_rank_adapters import merged_weights
from regard.training.run import TrainingRun
from regard.training.snapshots import prune_snapshots, snapshot_path
from regard.training.tasks.task import Assessment
from regard.weights import Model


def is_due(run: TrainingRun) -> bool:
    """Returns True if the weights of this step must be evaluated and have not been, as after an interruption."""
    training, step = run.settings.training, run.state.step
    due = step > 0 and (step % training.evaluate_every == 0 or step == training.steps)
    return due and not any(evaluation["step"] == step for evaluation in run.state.evaluations)


def evaluate(run: TrainingRun) -> Evaluation:
    """Measures the loss and scores on the dev set; saves the run, and the weights if they are the best so far."""
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
    if first:  # the state before this one needs its snapshots too
        before = state.ranked(training.metric, len(state.evaluations) - 1)
        prune_snapshots(run.work, best_steps[: training.average] + before[: training.average])
    shown = {name: scores[name] for name in run.task.shown_scores}
    return Evaluation(state.step, scores["loss"], perplexity(scores["loss"]), shown, is_best, sample, state.seconds)


def dev_scores(run: TrainingRun, model: Model, number: int) -> Assessment:
    """Returns the loss on the dev set in nats per token, the task's scores, and sample number `number`."""
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
