"""What comes before a model can learn from synthetic pairs: the model that makes them, and their making.

Back-translation (Sennrich et al., 2016): text in the target language is translated back into the source language.
Sequence-level distillation (Kim & Rush, 2016): a teacher translates the sources, and the student learns what it said.
Diversification (Nguyen et al., 2020): a corpus is translated both ways, by a model that has learnt both (Ding et al.,
2021) and then goes on with the pairs as people wrote them and as they came out.
Everything is made in training.new, and a run that was stopped goes on wherever it was.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.configuration import resolve
from regard.decoding.engine import load_as
from regard.decoding.translator import Translator
from regard.errors import DataError, InputError, SettingsError
from regard.folder import CARD, TRAINING, read_settings, write_text
from regard.options import merge
from regard.settings import Settings
from regard.text.doctor import Report, require_some
from regard.text.formats import Pair
from regard.text.remote import located
from regard.training.events import Event, Finished, Note, Stage
from regard.training.machine import set_up_machine
from regard.training.prepare import NEW, READY, REQUEST, install, traceless
from regard.training.synthetic import REVERSE, SYNTHETIC, Making, State, holds_pairs, made_in, read_sentences
from regard.training.task import ABOUT, BOTH, Request
from regard.weights import choose_device

Run = Callable[[Path, Request | None, threading.Event], Iterator[Event]]
"""Prepares and trains in a folder; without a request, goes on there."""


def with_back_translation(
    request: Request, settings: Settings, texts: Sequence[Path | str], reverse: Path | str | None
) -> Request:
    """The request with text to translate back, if there is any; refuses what cannot work before any work is done."""
    if not texts:
        if reverse is not None:
            raise InputError("--reverse is the model that translates back: give it text with --back-translate")
        return request
    if settings.task != "translate":
        raise SettingsError(f"--back-translate makes pairs of sentences: the task {settings.task} has no use for them")
    if settings.data.directions:
        raise SettingsError("--back-translate makes pairs for one direction: train without data.directions")
    for path in map(Path, texts):
        if holds_pairs(path):
            raise DataError("text to translate back is plain text, a sentence a line (it may end in .gz)", path)
    if reverse is not None:
        require_opposite(Path(reverse), settings)
    elif request.start is not None:
        raise InputError("with --from, name the model that translates back: --reverse MODEL")
    tags = settings.tokenizer.tags
    given = request.given
    if SYNTHETIC not in tags and request.start is None:
        given = merge(given, {"tokenizer": {"tags": [*tags, SYNTHETIC]}})
    return replace(
        request,
        given=given,
        texts=[str(located(name).resolve()) for name in texts],
        reverse=None if reverse is None else str(Path(reverse).resolve()),
    )


def with_diversity(request: Request, settings: Settings, wanted: bool) -> Request:
    """The request with a corpus that is translated both ways, if that is wanted; refuses what cannot work."""
    if not wanted:
        return request
    if settings.task != "translate":
        raise SettingsError(f"--diversify translates a corpus: the task {settings.task} has no use for it")
    if settings.data.directions:
        raise SettingsError("--diversify makes pairs for one direction: train without data.directions")
    if not settings.tokenizer.joint:
        raise SettingsError("--diversify needs one vocabulary for both languages: tokenizer.joint = true")
    if request.texts or request.start is not None:
        raise InputError("--diversify begins with a model of its own: leave out --from and --back-translate")
    return replace(request, diversify=True)


def require_opposite(reverse: Path, settings: Settings) -> None:
    """Refuses a model that does not translate from the target language into the source language."""
    found, wanted = load_as(Translator, reverse, "cpu").settings.data, settings.data
    if (found.source, found.target) != (wanted.target, wanted.source):
        raise InputError(
            f"{reverse}: translates {found.source} → {found.target}, and --reverse needs {wanted.target} → "
            f"{wanted.source}: give another model, or name the languages with --source and --target"
        )


def synthesize(folder: Path, request: Request, stop: threading.Event, run: Run) -> Iterator[Event]:
    """Makes the pairs that a request asks for, from wherever an earlier run has come to."""
    new = folder / NEW
    states = [State.load(place) for place in made_in(new, request)]
    if all(state is not None and state.complete for state in states):
        return
    with traceless(folder):
        start = None if request.start is None else read_settings(Path(request.start))
        settings = resolve(request.given, start=start)
        write_text(new / REQUEST, json.dumps(asdict(request)))
        total = yield from count(request, settings, stop)
        if stop.is_set():
            return
        if before := {state.texts for state in states if state is not None} - {total}:
            raise DataError(
                f"{' and '.join(request.texts or request.files)}: had {before.pop():,} usable sentences when the "
                f"translating began, and now has {total:,}: restore it, or start over with --overwrite"
            )
        yield from train_maker(new, request, settings, stop, run)
        if stop.is_set():
            return
        set_up_machine(settings.training, choose_device(settings.training.device))
        for making, state in zip(makings(new, request, settings), states, strict=True):
            found = state or State(total)
            yield from making.run(found, stop)
            if not found.complete:
                return
            yield from (Note(f"synthetic: {line}") for line in found.lines())


def makings(new: Path, request: Request, settings: Settings) -> list[Making]:
    """What is translated: text back, sources there, or a corpus there and back, by a model that knows both ways."""
    trained = new / (BOTH if request.diversify else REVERSE)
    translator = load_as(Translator, request.teacher or request.reverse or trained, settings.training.device)
    folders = made_in(new, request)

    def turned() -> Iterator[Pair]:
        return (pair.turned() for pair in read_sentences(request, settings.data, Report()))

    def read() -> Iterator[Pair]:
        return read_sentences(request, settings.data, Report())

    first = Making(folders[0], read, translator, settings.data, back=bool(request.texts))
    return [first, *(Making(folder, turned, translator, settings.data, back=True) for folder in folders[1:])]


def count(request: Request, settings: Settings, stop: threading.Event) -> Generator[Event, None, int]:
    """Reads all that is to be translated, so that a mistake in it is found at once; returns how much it is."""
    report = Report()
    for number, _ in enumerate(read_sentences(request, settings.data, report)):
        if number % 5000 == 0:
            yield Stage("reading what is to be translated", number)
            if stop.is_set():
                return 0
    require_some(report, [located(name) for name in request.texts or request.files])
    yield from (Note(f"to be translated: {line}") for line in report.lines())
    return report.kept


def train_maker(new: Path, request: Request, settings: Settings, stop: threading.Event, run: Run) -> Iterator[Event]:
    """Trains the model that makes the pairs, if none is given, with the same settings; its dev pairs are the same."""
    source, target = settings.data.source, settings.data.target
    if request.diversify:
        folder, name, wanted = new / BOTH, "that translates both ways", both_ways(request)
    elif request.texts and request.reverse is None:
        folder, name, wanted = new / REVERSE, "that translates back", swapped(request, settings)
        source, target = target, source
    else:
        return
    if not (folder / CARD).exists():  # which is written last
        yield Note(f"First the model {name}, {source} → {target}{' and back' * request.diversify}.")
        if (folder / NEW / READY).exists():
            install(folder)
        begun = (folder / TRAINING / ABOUT).exists()
        for event in run(folder, None if begun else wanted, stop):
            if not isinstance(event, Finished):
                yield event
            elif event.complete:
                yield Note(f"The model {name} is trained: {event.reason}.")
                yield from (Note(f"{known}, {source} → {target}: {s[0]}") for known, s in event.scores.items())
    if (folder / CARD).exists():
        shutil.rmtree(folder / TRAINING, ignore_errors=True)


def swapped(request: Request, settings: Settings) -> Request:
    """The request for the model that translates back."""
    data = settings.data
    changed: dict[str, Any] = {"data": {"source": data.target, "target": data.source}, "training": {"history": 0}}
    changed["tokenizer"] = {"tags": [tag for tag in settings.tokenizer.tags if tag != SYNTHETIC]}
    return Request(request.files, merge(request.given, changed), request.device, request.dev, swapped=True)


def both_ways(request: Request) -> Request:
    """The request for the model that translates both ways."""
    given = merge(request.given, {"training": {"history": 0}})
    return Request(request.files, given, request.device, request.dev, both=True)
