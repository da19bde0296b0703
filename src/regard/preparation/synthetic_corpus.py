"""Makes the synthetic pairs that a training run needs, after it has trained the model that makes them if need be.

Back-translation (Sennrich et al., 2016): text in the target language is translated back into the source language.
Sequence-level distillation (Kim & Rush, 2016): a teacher translates the sources, and the student learns from that.
Everything is made in training.new, and a run that was stopped continues where it was.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.atomic_files import write_text
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import DataError, InputError, SettingsError
from regard.files.formats.format_by_suffix import require_plain
from regard.files.remote_files import as_path
from regard.model_folder import CARD, TRAINING, read_settings
from regard.preparation.prepared_folder import NEW, READY, REQUEST, REVERSE, install, removing_traces
from regard.preparation.synthetic_pairs import (
    SYNTHETIC,
    SyntheticState,
    TranslateSentences,
    read_sentences,
    translate_sentences,
)
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import Settings
from regard.settings.option_fields import merge
from regard.settings.resolution import resolve
from regard.tokens.corpus_report import Report, require_kept
from regard.training.events import Event, Finished, Note, Stage
from regard.training.machine_checks import set_up_machine
from regard.training.tasks.task import ABOUT
from regard.weights import choose_device

TrainInFolder = Callable[[Path, TrainingRequest | None, threading.Event], Iterator[Event]]
"""Prepares and trains in a folder; without a request, continues there."""


def with_back_translation(
    request: TrainingRequest, settings: Settings, texts: Sequence[Path | str], reverse: Path | str | None
) -> TrainingRequest:
    """Adds text to translate back to a request; refuses what cannot work before any work is done."""
    if not texts:
        if reverse is not None:
            raise InputError("--reverse MODEL translates text back: add the text with --back-translate FILES")
        return request
    if settings.task != "translate":
        raise SettingsError(f"--back-translate makes pairs, which the task {settings.task} cannot use: leave it out")
    if settings.data.directions:
        raise SettingsError("--back-translate makes pairs for one direction: train without data.directions")
    for path in map(as_path, texts):
        require_plain(path, "text to translate back is plain text, one sentence per line (it may end in .gz)")
    if reverse is not None:
        require_opposite(Path(reverse), settings)
    elif request.start is not None:
        raise InputError("--back-translate with --from needs the model that translates back: add --reverse MODEL")
    tags = settings.tokenizer.tags
    given = request.given
    if SYNTHETIC not in tags and request.start is None:
        given = merge(given, {"tokenizer": {"tags": [*tags, SYNTHETIC]}})
    return replace(
        request,
        given=given,
        texts=[str(as_path(name).absolute()) for name in texts],
        reverse=None if reverse is None else str(Path(reverse).resolve()),
    )


def require_opposite(reverse: Path, settings: Settings) -> None:
    """Refuses a model that does not translate from the target language into the source language."""
    data, wanted = load_as(Translator, reverse, "cpu").settings.data, settings.data
    if (data.source, data.target) != (wanted.target, wanted.source):
        raise InputError(
            f"{reverse}: translates {data.source} → {data.target}, and --reverse needs {wanted.target} → "
            f"{wanted.source}: give another model, or name the languages with --source and --target"
        )


def synthesize(folder: Path, request: TrainingRequest, stop: threading.Event, run: TrainInFolder) -> Iterator[Event]:
    """Makes the pairs that a request needs, and continues with those of an earlier run."""
    new = folder / NEW
    pairs_folder = new / SYNTHETIC
    state = SyntheticState.load(pairs_folder)
    if state is not None and state.complete:
        return
    with removing_traces(folder):
        start = None if request.start is None else read_settings(Path(request.start))
        settings = resolve(request.given, start=start)
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
            yield from train_reverse(new / REVERSE, request, settings, stop, run)
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
    """Reads all text to translate, so that a mistake in it is found at once; returns the number of sentences."""
    report = Report()
    for number, _ in enumerate(read_sentences(request, settings.data, report)):
        if number % 5000 == 0:
            yield Stage("reading the text to translate", number)
            if stop.is_set():
                return 0
    require_kept(report, [as_path(name) for name in request.texts or request.files])
    yield from (Note(f"to be translated: {line}") for line in report.lines())
    return report.kept


def train_reverse(
    folder: Path, request: TrainingRequest, settings: Settings, stop: threading.Event, run: TrainInFolder
) -> Iterator[Event]:
    """Trains the model that translates back on the same corpus, with the same settings and the same dev pairs."""
    if not (folder / CARD).exists():  # which is written last
        data = settings.data
        yield Note(f"First the model that translates back, {data.target} → {data.source}.")
        if (folder / NEW / READY).exists():
            install(folder)
        begun = (folder / TRAINING / ABOUT).exists()
        for event in run(folder, None if begun else swapped(request, settings), stop):
            if not isinstance(event, Finished):
                yield event
            elif event.complete:
                yield Note(f"The model that translates back is trained: {event.reason}.")
                yield from (Note(f"{name}, {data.target} → {data.source}: {s[0]}") for name, s in event.scores.items())
    if (folder / CARD).exists():
        shutil.rmtree(folder / TRAINING, ignore_errors=True)


def swapped(request: TrainingRequest, settings: Settings) -> TrainingRequest:
    """Returns the request for the model that translates back."""
    data = settings.data
    changed: dict[str, Any] = {"data": {"source": data.target, "target": data.source}, "training": {"history": 0}}
    changed["tokenizer"] = {"tags": [tag for tag in settings.tokenizer.tags if tag != SYNTHETIC]}
    return TrainingRequest(request.files, merge(request.given, changed), request.device, request.dev, swapped=True)
