"""Finishes a run: chooses its final weights, scores them and writes the model card."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence

from torch import Tensor

import regard
from regard.atomic_files import write_text
from regard.errors import ModelError
from regard.model_folder import CANARY, CARD, LOG, WEIGHTS
from regard.settings import Settings
from regard.tokens.language_directions import format_directions, targets_of
from regard.training.checkpoint import find_damage
from regard.training.events import Event, Finished, Note, append_event
from regard.training.low_rank_adapters import merge_adapters
from regard.training.run import TrainingRun
from regard.training.validation import average_snapshots, dev_scores, keep_in_history, snapshot_path
from regard.weights import Model, assign


def finish(run: TrainingRun, reason: str) -> Iterator[Event]:
    """Chooses the final weights, scores them and writes the model card; only the first process does this."""
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
                yield Note(f"{snapshot_path(run.work, step)}: {damage}: the final weights do not include it")
            else:
                steps.append(step)
        assign(model, best_weights(run, model, steps), run.folder / WEIGHTS)
        run.write_weights(model)
        model.eval()
        for name in run.about["held_out"]:
            finished.scores[name] = run.task.report(run.contents(model), name)
        if run.task.confidence is not None:
            run.task.confidence.save(run.folder)
        write_canary(run, model)
        write_text(run.folder / CARD, model_card(run, model, finished))
    append_event(run.folder / LOG, finished)
    yield finished


def write_canary(run: TrainingRun, model: Model) -> None:
    """Writes a few texts with the model's greedy outputs, with which a server checks the model before serving it."""
    outputs = dict(run.task.examples(run.contents(model)))
    examples = [{"source": source, "output": output} for source, output in outputs.items() if output]
    if examples:
        text = json.dumps({"version": 1, "examples": examples}, ensure_ascii=False, indent=1)
        write_text(run.folder / CANARY, text + "\n")


def best_weights(run: TrainingRun, model: Model, steps: Sequence[int]) -> dict[str, Tensor]:
    """Returns the mean of the best checkpoints, or the single best one if the mean scores worse on the dev set."""
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


def model_card(run: TrainingRun, model: Model, finished: Finished) -> str:
    """Returns the model card, which describes a model for human readers, as Markdown."""
    name, settings, about, unit = run.folder.name, run.settings, run.about, run.task.unit
    today = datetime.datetime.now(datetime.UTC).date()
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {name}: {describe_purpose(settings)}",
        "",
        f"Trained with Regard {regard.__version__} on {today}.",
        "",
        "## Use",
        "```",
        f"regard {settings.task} {name} {example_input(settings)}",
        "```",
        "## Data",
        f"{about['examples']:,} {unit} from {', '.join(about['files'])}.",
        *(f"- {line}" for line in about["corpus"]),
        *(f"- {direction}: {count:,} {unit}" for direction, count in about.get("directions", {}).items()),
        *(f"- {line}" for line in about.get("synthetic", ())),
        *(f"- label {label}: {count:,}" for label, count in sorted(about.get("balance", {}).items())),
        "",
        "## Model",
        f"Preset {about['preset']} ({about['reason']}). {parameters:,} parameters: {settings.shape}.",
        "",
        "## Training",
        f"{finished.step:,} steps in {finished.seconds / 60:.1f} minutes; ended because {finished.reason}.",
        "",
        "## Scores",
    ]
    for held_out, scores in finished.scores.items():
        lines += [f"{held_out} ({about['held_out'][held_out]:,} {unit}):", "```", *scores, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def example_input(settings: Settings) -> str:
    """Returns example arguments for the command that runs a model."""
    texts = {"write": '"Once upon a time"', "fill": '"Paris is the [MASK] of France."'}
    text = texts.get(settings.task, "input.txt")
    return f"{text} --to {settings.data.target}" if len(targets_of(settings.data)) > 1 else text


def describe_purpose(settings: Settings) -> str:
    purposes = {
        "translate": format_directions(settings.data),
        "write": "continues text",
        "fill": "fills gaps in text",
        "classify": f"labels {settings.data.carrier}s",
        "embed": "turns text into vectors",
    }
    return purposes[settings.task]
