"""The end of a run: its final weights are chosen, scored and described in the model card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from regard.atomic_files import write_text
from regard.errors import ModelError
from regard.model_folder import CANARY, CARD, LOG, WEIGHTS
from regard.training.checkpoint import find_damage
from regard.training.events import Event, Finished, Note, append_event
from regard.training.low_rank_adapters import merge_adapters
from regard.training.model_card import write_card
from regard.training.run import TrainingRun
from regard.training.snapshots import average_snapshots, keep_in_history, snapshot_path
from regard.training.validation import dev_scores
from regard.weights import Model, assign


def finish(run: TrainingRun, reason: str) -> Iterator[Event]:
    """Chooses the final weights, scores them and writes the model card, in the first process."""
    state, training = run.state, run.settings.training
    finished = Finished(reason, True, state.step, state.seconds, {})
    keep_in_history(run, last=True)
    with run.whole_model(mean=False) as model:
        if not run.group.first:
            yield finished
            return
        merge_adapters(model)
        steps = []
        for step in state.ranked(training.metric)[: training.average]:
            if damage := find_damage(snapshot_path(run.work, step)):
                yield Note(f"{snapshot_path(run.work, step)}: {damage}: the final weights are made without it")
            else:
                steps.append(step)
        assign(model, best_weights(run, model, steps), run.folder / WEIGHTS)
        run.write_weights(model)
        model.eval()
        scores = {name: run.task.report(run.contents(model), name) for name in run.about["held_out"]}
        finished = replace(finished, scores=scores)
        if run.task.confidence is not None:
            run.task.confidence.save(run.folder)
        write_canary(run, model)
        text = write_card(run.folder.name, run.settings, run.about, run.task.unit, model, finished)
    write_text(run.folder / CARD, text)
    append_event(run.folder / LOG, finished)
    yield finished


def write_canary(run: TrainingRun, model: Model) -> None:
    """Writes a few texts with the model's greedy outputs, by which a server checks the model before it serves it."""
    outputs = dict(run.task.examples(run.contents(model)))
    examples = [{"source": source, "output": output} for source, output in outputs.items() if output]
    if examples:
        text = json.dumps({"version": 1, "examples": examples}, ensure_ascii=False, indent=1)
        write_text(run.folder / CANARY, text + "\n")


def best_weights(run: TrainingRun, model: Model, steps: Sequence[int]) -> dict[str, Tensor]:
    """Returns the mean of the best checkpoints or, if its score on the dev set is lower, the best one."""
    if not steps:
        raise ModelError(f"{run.work}: all checkpoints of evaluated steps are damaged: train again with --overwrite")
    metric = run.settings.training.metric
    single, mean = average_snapshots(run.work, steps[:1]), average_snapshots(run.work, steps)
    if len(steps) == 1:
        return single
    assign(model, mean, run.work)
    sign = -1 if metric == "loss" else 1
    best = max(sign * evaluation[metric] for evaluation in run.state.evaluations)
    return mean if sign * dev_scores(run, model, 0)[0][metric] >= best else single
