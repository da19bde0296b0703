"""When a run is over, and what would train a finished one on."""

from __future__ import annotations

from pathlib import Path

from regard.model_folder import TRAINING, last_event, read_settings
from regard.settings import Settings, TrainingSettings
from regard.training.checkpoint import State, newest_state
from regard.training.events import Finished, Note


def reason_to_end(training: TrainingSettings, state: State) -> str:
    """Returns why training is over, or an empty string."""
    if state.step >= training.steps:
        return f"all {training.steps:,} steps are done"
    if since := evaluations_in_vain(training, state):
        return f"dev {training.metric} has not improved for {since} evaluations"
    return ""


def evaluations_in_vain(training: TrainingSettings, state: State) -> int:
    """Returns the number of evaluations since the best one if patience is at its end, else 0."""
    if not state.evaluations or not training.patience or state.step <= training.warmup:
        return 0
    best = state.ranked(training.metric)[0]
    since = sum(evaluation["step"] > best for evaluation in state.evaluations)
    return since if since >= training.patience else 0


def finished_run(folder: Path, changed: Settings | None = None) -> Finished | None:
    """Returns how the run in a folder ended, if it did and its settings, or `changed` ones, leave nothing to do."""
    event, state = last_event(folder), newest_state(folder / TRAINING)
    if event.pop("event", "") != "Finished" or state is None or state.step != event["step"]:
        return None
    finished = Finished(**event)
    training = (changed or read_settings(folder)).training
    return finished if reason_to_end(training, state) else None


def how_to_train_on(folder: Path, finished: Finished) -> Note:
    """Says that a run is finished and was left as it is, and what would train its model further."""
    training, state = read_settings(folder).training, newest_state(folder / TRAINING) or State(finished.step)
    changes = [f"--training.steps above {state.step}"] if state.step >= training.steps else []
    if since := evaluations_in_vain(training, state):
        changes.append(f"--training.patience above {since} (0: never stop early)")
    resumed = f"resume with {' and '.join(changes)}, or " if changes else ""
    return Note(
        f"{folder}: training is finished: {finished.reason}. Nothing was changed. "
        f"To train on, {resumed}start a new run from this model: regard train FILES --from {folder}."
    )
