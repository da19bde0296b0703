"""Decides when a training run is over, and explains how to train a finished model further."""

from __future__ import annotations

from pathlib import Path

from regard.model_folder import TRAINING, last_event, read_settings
from regard.settings import Settings, TrainingSettings
from regard.training.checkpoint import State, newest_state
from regard.training.events import Finished, Note


def reason_to_end(training: TrainingSettings, state: State) -> str:
    """Returns the reason why training is over, or an empty string if it is not."""
    if state.step >= training.steps:
        return f"all {training.steps:,} steps are done"
    if count := exhausted_patience(training, state):
        return f"dev {training.metric} has not improved for {count} evaluations"
    return ""


def exhausted_patience(training: TrainingSettings, state: State) -> int:
    """Returns the number of evaluations since the best one if training.patience is exhausted, else 0."""
    if not state.evaluations or not training.patience or state.step <= training.warmup:
        return 0
    best = state.ranked(training.metric)[0]
    count = sum(evaluation["step"] > best for evaluation in state.evaluations)
    return count if count >= training.patience else 0


def finished_run(folder: Path, changed: Settings | None = None) -> Finished | None:
    """Returns the final event of the run in a folder if its settings, or the `changed` ones, leave nothing to do."""
    event, state = last_event(folder), newest_state(folder / TRAINING)
    if event.pop("event", "") != "Finished" or state is None or state.step != event["step"]:
        return None
    training = (changed or read_settings(folder)).training
    return Finished(**event) if reason_to_end(training, state) else None


def explain_finished(folder: Path, finished: Finished) -> Note:
    """Returns a note that the run is finished and unchanged, and that explains how to train its model further."""
    training, state = read_settings(folder).training, newest_state(folder / TRAINING) or State(finished.step)
    changes = [f"--training.steps above {state.step}"] if state.step >= training.steps else []
    if count := exhausted_patience(training, state):
        changes.append(f"--training.patience above {count} (0: never stop early)")
    resumed = f"resume with {' and '.join(changes)}, or " if changes else ""
    return Note(
        f"{folder}: training is finished: {finished.reason}. Nothing was changed. "
        f"To continue training, {resumed}start a new run from this model: regard train FILES --from {folder}."
    )
