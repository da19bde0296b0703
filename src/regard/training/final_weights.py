"""The final weights of a run: how they are chosen, scored and described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from regard.atomic_files import write_text
from regard.errors import ModelError
from regard.model_folder import CARD, LOG, WEIGHTS
from regard.training import event_log as log
from regard.training.checkpoint import average, damage_of, snapshot_path
from regard.training.events import Event, Finished, Note
from regard.training.low_rank_adapters import merge, merged
from regard.training.model_card import write_card
from regard.training.run import TrainingRun
from regard.training.validation import dev_scores
from regard.training.weights_history import keep_snapshot
from regard.weights import Model, assign, write_tensors


def finish(run: TrainingRun, reason: str) -> Iterator[Event]:
    """Chooses the final weights, scores them and writes the model card, in the first process."""
    state = run.state
    finished = Finished(reason, True, state.step, state.seconds, {})
    keep_snapshot(run, last=True)
    with run.whole_model(mean=False) as model:
        if not run.group.first:
            yield finished
            return
        merge(model)
        steps = []
        for step in state.ranked(run.settings.training.metric)[: run.settings.training.average]:
            if why := damage_of(snapshot_path(run.work, step)):
                yield Note(f"{snapshot_path(run.work, step)}: {why}: the final weights are made without it")
            else:
                steps.append(step)
        assign(model, best_weights(run, model, steps), run.folder / WEIGHTS)
        write_tensors(run.folder / WEIGHTS, merged(model))
        model.eval()
        scores = {name: run.task.report(run.contents(model), name) for name in run.about["held_out"]}
        finished = replace(finished, scores=scores)
        if run.task.confidence is not None:
            run.task.confidence.save(run.folder)
        text = write_card(run.folder.name, run.settings, run.about, run.task.unit, model, finished)
    write_text(run.folder / CARD, text)
    log.append(run.folder / LOG, finished)
    yield finished


def best_weights(run: TrainingRun, model: Model, steps: Sequence[int]) -> dict[str, Tensor]:
    """Returns the mean of the best checkpoints or, if that does worse on the dev set, the best one."""
    if not steps:
        raise ModelError(f"{run.work}: no checkpoint of an evaluated step is whole: train again with --overwrite")
    metric = run.settings.training.metric
    single, mean = average(run.work, steps[:1]), average(run.work, steps)
    if len(steps) == 1:
        return single
    assign(model, mean, run.work)
    sign = -1 if metric == "loss" else 1
    best = max(sign * evaluation[metric] for evaluation in run.state.evaluations)
    return mean if sign * dev_scores(run, model, 0)[0][metric] >= best else single
