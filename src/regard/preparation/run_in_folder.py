"""Runs training in a folder: generates synthetic pairs if needed, prepares the corpus, and trains.

Back-translation (Sennrich et al., 2016) translates text in the target language back into the source language.
Sequence-level distillation (Kim & Rush, 2016) trains a student on a teacher's translations of the sources. All files
are first written to training.new, and an interrupted run continues where it stopped.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.atomic_files import write_text
from regard.errors import DataError
from regard.files.corpus_report import Report, require_kept
from regard.files.remote_files import as_path
from regard.model_folder import CARD, TRAINING, read_settings, sole_writer
from regard.preparation.chosen_settings import resolve
from regard.preparation.prepared_folder import (
    NEW,
    READY,
    REQUEST,
    REVERSE,
    cleaning_up_on_error,
    events_from_thread,
    install,
    prepare,
)
from regard.preparation.synthetic_pairs import (
    SYNTHETIC,
    SyntheticState,
    TranslateSentences,
    read_sentences,
    translate_sentences,
)
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import Settings, TrainingSettings
from regard.settings.option_fields import merge
from regard.training.distributed import ProcessGroup, join_group, report_lost_process
from regard.training.events import Event, Finished, Note, Stage
from regard.training.loop import train_model
from regard.training.machine_setup import set_up_machine
from regard.training.run import open_run
from regard.training.stopping import explain_finished
from regard.training.tasks.task import ABOUT
from regard.weights import choose_device

Beginning = TrainingRequest | Finished | None
"""A request to prepare, or the final event of a run that has ended; None if training can begin."""


def run_in_folder(
    folder: Path,
    begin: Callable[[ProcessGroup], Beginning],
    stop: threading.Event,
    given: Mapping[str, Any],
    prepare_only: bool = False,
    notes: Iterable[Note] = (),
) -> Generator[Event, None, None]:
    """Yields the notes, prepares the request from `begin` in the first process, and trains in all processes."""
    yield from notes
    group = join_group(int(given.get("training", {}).get("timeout", TrainingSettings.timeout)))
    try:
        with sole_writer(folder) if group.first else nullcontext(), report_lost_process():
            ended = yield from group.run_in_first(lambda: prepare_run(folder, begin(group), stop))
            if ended:
                yield Finished(**ended)
            elif not prepare_only:
                yield from train_model(open_run(folder, stop, group))
    finally:
        group.leave()


def prepare_run(folder: Path, beginning: Beginning, stop: threading.Event) -> Generator[Event, None, dict[str, Any]]:
    """Prepares a request; returns the final event of a run that has ended, or an empty dict if training can begin."""
    if isinstance(beginning, Finished):
        yield explain_finished(folder, beginning)
        return asdict(beginning)
    if beginning is None:
        return {}
    if beginning.synthetic:
        yield from synthesize(folder, beginning, stop)
    if not (beginning.synthetic and stop.is_set()):
        yield from events_from_thread(lambda send: prepare(folder, beginning, send), stop)
    return asdict(Finished("stopped", False, 0, 0.0, {})) if stop.is_set() else {}


def synthesize(folder: Path, request: TrainingRequest, stop: threading.Event) -> Iterator[Event]:
    """Generates the synthetic pairs that a request needs, or continues to do so after an interruption."""
    new = folder / NEW
    pairs_folder = new / SYNTHETIC
    state = SyntheticState.load(pairs_folder)
    if state is not None and state.complete:
        return
    with cleaning_up_on_error(folder):
        settings = resolve(request.given, start=request.start_settings())
        write_text(new / REQUEST, json.dumps(asdict(request)))
        total = yield from count_sentences(request, settings, stop)
        if stop.is_set():
            return
        if state is not None and state.texts != total:
            raise DataError(
                f"{' and '.join(request.texts or request.files)}: had {state.texts:,} usable sentences when "
                f"translation began, and now has {total:,}: restore it, or start over with --overwrite"
            )
        if request.texts and request.reverse is None:
            yield from train_reverse(new / REVERSE, request, settings, stop)
        if stop.is_set():
            return
        set_up_machine(settings.training, choose_device(settings.training.device))
        model, back = Path(request.teacher or request.reverse or new / REVERSE), bool(request.texts)
        most = settings.data.max_characters
        work = TranslateSentences(path=str(model), device=settings.training.device, back=back, max_characters=most)
        by = read_settings(model).data
        stage = f"translating {'back ' if back else ''}by {by.source} → {by.target}"
        state = SyntheticState(total)
        state.save(pairs_folder)
        sentences = read_sentences(request, settings.data, Report())
        yield from translate_sentences(pairs_folder, sentences, state, work, stop, stage=stage)
        if state.complete:
            yield from (Note(f"synthetic: {line}") for line in state.lines())


def count_sentences(request: TrainingRequest, settings: Settings, stop: threading.Event) -> Generator[Event, None, int]:
    """Reads all text to translate, so that errors in it are found early; returns the number of sentences."""
    report = Report()
    for number, _ in enumerate(read_sentences(request, settings.data, report)):
        if number % 5000 == 0:
            yield Stage("reading the text to translate", number)
            if stop.is_set():
                return 0
    require_kept(report, [as_path(name) for name in request.texts or request.files])
    yield from (Note(f"to be translated: {line}") for line in report.lines())
    return report.kept


def train_reverse(folder: Path, request: TrainingRequest, settings: Settings, stop: threading.Event) -> Iterator[Event]:
    """Trains the model for back-translation on the same corpus, with the same settings and dev pairs."""
    if not (folder / CARD).exists():  # the card is written last
        data = settings.data
        yield Note(f"First step: train the model that translates back, {data.target} → {data.source}.")
        if (folder / NEW / READY).exists():
            install(folder)
        begun = (folder / TRAINING / ABOUT).exists()
        stopped = yield from prepare_run(folder, None if begun else reversed_request(request, settings), stop)
        for event in () if stopped else train_model(open_run(folder, stop)):
            if not isinstance(event, Finished):
                yield event
            elif event.complete:
                yield Note(f"The model that translates back is trained: {event.reason}.")
                yield from (Note(f"{name}, {data.target} → {data.source}: {s[0]}") for name, s in event.scores.items())
    if (folder / CARD).exists():
        shutil.rmtree(folder / TRAINING, ignore_errors=True)


def reversed_request(request: TrainingRequest, settings: Settings) -> TrainingRequest:
    """Returns the request for training the model for back-translation."""
    data = settings.data
    changed: dict[str, Any] = {"data": {"source": data.target, "target": data.source}, "training": {"history": 0}}
    changed["tokenizer"] = {"tags": [tag for tag in settings.tokenizer.tags if tag != SYNTHETIC]}
    return TrainingRequest(request.files, merge(request.given, changed), request.device, request.dev, swapped=True)
