"""Texts, pages and documents through the models that are served: the way they take, and what is kept on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.decoding.documents import Made, fill
from regard.decoding.faithful import Faithful, Job, Result
from regard.errors import DataError, InputError
from regard.serving import html_text, language_codes
from regard.text import protect
from regard.text.directions import Direction
from regard.text.formats import Unit, files

if TYPE_CHECKING:
    from regard.decoding.translator import Translation
    from regard.serving.models import Models
    from regard.serving.queues import TranslatorQueue

T = TypeVar("T")

THREADS = 64
"""Texts with protected pieces, and documents, that are worked on at once; their threads wait most of the time."""


@dataclass(frozen=True)
class TranslationCall:
    """Who asks for a translation, by when, and how it shall be made."""

    client: str = ""
    deadline: float | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Answer:
    """A translation and what there is to say about it."""

    text: str
    alternatives: tuple[str, ...] = ()
    translation: Translation | None = None  # what the model thought of it, if it was asked
    flags: tuple[str, ...] = ()  # what a person has to look at


class TranslationService:
    """Translates with the models that are there, through a language in between if that is allowed."""

    def __init__(self, models: Models, pivot: str | None = None) -> None:
        self.models = models
        self.pivot = None if pivot is None else language_codes.find(pivot, self.languages)
        if pivot is not None and self.pivot is None:
            raise InputError(f"no model knows the language {pivot}, through which to translate")
        self.threads = ThreadPoolExecutor(THREADS, "regard-texts")

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    # Which way

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(each.source for each in self.models.directions))

    @property
    def languages(self) -> list[str]:
        """Every language once, those that are translated from first."""
        return list(dict.fromkeys([*self.sources, *(each.target for each in self.models.directions)]))

    def targets(self, source: str) -> list[str]:
        """The languages that one is translated into."""
        return [each for each in self.languages if each != source and self.way(source, each)]

    def way(self, source: str, target: str) -> list[Direction]:
        """The steps from one language to another; none where no model knows one."""
        known = self.models.directions
        for steps in ([(source, target)], [(source, self.pivot), (self.pivot, target)] if self.pivot else []):
            found = [each for step in steps for each in known if (each.source, each.target) == step]
            if steps and len(found) >= len(steps):
                return list(dict.fromkeys(found))
        return []

    # What is translated

    async def texts(self, texts: Sequence[str], way: Sequence[Direction], asked: TranslationCall) -> list[Answer]:
        """The translations of plain texts; of several steps, the alternatives are those of the last one."""
        return await self._jobs([Job(text) for text in texts], way, asked)

    async def pages(self, pages: Sequence[str], way: Sequence[Direction], asked: TranslationCall) -> list[Answer]:
        """The translations of HTML, with all of its markup."""
        cut = [html_text.cut(page) for page in pages]
        jobs = [Job(run.text, run.marks) for runs in cut for run in runs if run.words]
        made = iter(await self._jobs(jobs, way, asked))
        answers = []
        for runs in cut:
            found = [(run, next(made) if run.words else None) for run in runs]
            text = "".join(
                run.text if answer is None else html_text.safe(answer.text, run.marks) for run, answer in found
            )
            flags = dict.fromkeys(flag for _, answer in found if answer for flag in answer.flags)
            answers.append(Answer(text, flags=tuple(flags)))
        return answers

    async def document(self, path: Path, way: Sequence[Direction], asked: TranslationCall) -> bytes:
        """A file with translations of all that it has no finished ones for."""
        bridges = [self._bridge(step, asked) for step in way]

        def work() -> bytes:
            document = files.open_document(path, way[0].source, way[-1].target)
            if len(document.units) == 0:
                raise DataError("nothing to translate is in it", path)
            targets = {}
            with closing(fill(document, lambda units: _made(units, bridges))) as outcomes:
                for outcome in outcomes:
                    targets[outcome.number] = outcome.made.text
            return document.render(targets, way[-1].target)

        return await self._in_thread(bridges, work)

    async def _jobs(self, jobs: Sequence[Job], way: Sequence[Direction], asked: TranslationCall) -> list[Answer]:
        """Each job through each step; those with pieces that must be kept take a way of their own."""
        answers = [Answer(job.text) for job in jobs]
        for number, step in enumerate(way):
            last = number == len(way) - 1
            now = asked if last else replace(asked, options=_for_the_way(asked.options))
            todo = [Job(answer.text, job.marks) for job, answer in zip(jobs, answers, strict=True)]
            guarded = [bool(protect.find(job.text, job.marks)) for job in todo]
            flags = [answer.flags for answer in answers]
            with_pieces = [job for job, has in zip(todo, guarded, strict=True) if has]
            without = self._plain([job.text for job, has in zip(todo, guarded, strict=True) if not has], step, now)
            kept, plain = (
                await asyncio.gather(self._kept(with_pieces, step, now), without)
                if with_pieces
                else ([], await without)
            )
            sides = iter(kept), iter(plain)
            answers = [next(sides[0 if has else 1]) for has in guarded]
            answers = [
                replace(each, flags=tuple(dict.fromkeys([*before, *each.flags])))
                for each, before in zip(answers, flags, strict=True)
            ]
        return answers

    async def _plain(self, texts: Sequence[str], step: Direction, asked: TranslationCall) -> list[Answer]:
        """Translations of texts without protected pieces; white space around them stays, and what has no words."""
        worth = [text for text in texts if any(map(str.isalpha, text))]
        bridge = self._bridge(step, asked)
        made = iter(await bridge.wait_for(worth, **bridge.options) if worth else [])
        return [_answer(text, next(made)) if any(map(str.isalpha, text)) else Answer(text) for text in texts]

    async def _kept(self, jobs: Sequence[Job], step: Direction, asked: TranslationCall) -> list[Answer]:
        """Translations that have exactly the protected pieces of their sources."""
        if not jobs:
            return []
        bridge = self._bridge(step, asked)
        results = await self._in_thread([bridge], lambda: bridge.keep(jobs))
        answers = []
        for job, result in zip(jobs, results, strict=True):
            wanted = protect.counts(job.text, job.marks)
            others = result.translation.alternatives if result.translation else ()
            fitting = [each.text for each in others if protect.counts(each.text, job.marks) == wanted]
            answers.append(Answer(result.text, _distinct(fitting, result.text), result.translation, result.flags))
        return answers

    def _bridge(self, step: Direction, asked: TranslationCall) -> Bridge:
        return Bridge(self.models.queue(step), step, asked)

    async def _in_thread(self, bridges: Sequence[Bridge], work: Callable[[], T]) -> T:
        """What a thread makes that translates by these bridges; they break when nobody waits any longer."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        finally:
            for bridge in bridges:
                bridge.close()


class Bridge:
    """A translator as threads use it: its texts wait with those of all clients."""

    def __init__(self, queue: TranslatorQueue, step: Direction, asked: TranslationCall) -> None:
        self.queue, self.step, self.asked = queue, step, asked
        self.loop = asyncio.get_running_loop()
        self.waiting: Future[list[Translation]] | None = None
        self.closed, self.lock = False, threading.Lock()
        translator = queue.translator
        self.source, self.target, self.settings = translator.source, translator.target, translator.settings
        self.direction, self.decoding = translator.direction, translator.decoding

    @property
    def options(self) -> dict[str, Any]:
        return {**dict(self.asked.options), "source": self.step.source, "target": self.step.target}

    async def wait_for(self, texts: Sequence[Any], **options: Any) -> list[Translation]:
        """The translations of some texts, when it is their turn."""
        asked = self.asked
        return await self.queue.translate(texts, client=asked.client, deadline=asked.deadline, **options)

    def keep(self, jobs: Sequence[Job]) -> list[Result]:
        """Translations with exactly the pieces of their sources, for a thread."""
        return list(Faithful(self).translate(jobs, **self.options))

    def translate(self, texts: Iterable[Any], **options: Any) -> list[Translation]:
        """The same, for a thread; a second search for outputs with all placeholders takes longer than clients wait."""
        if options.get("constrain") is not None:
            raise InputError("a server has no time for a second search")
        with self.lock:
            if self.closed:
                raise CancelledError
            self.waiting = asyncio.run_coroutine_threadsafe(self.wait_for(list(texts), **options), self.loop)
        return self.waiting.result()

    def close(self) -> None:
        """Takes back what is waited for, and ends the thread when it asks again."""
        with self.lock:
            self.closed = True
            if self.waiting is not None:
                self.waiting.cancel()


def _made(units: Sequence[Unit], bridges: Sequence[Bridge]) -> list[Made]:
    """Units through each step, for a thread."""
    made = [Made(unit.source) for unit in units]
    for bridge in bridges:
        jobs = [Job(each.text, unit.marks) for each, unit in zip(made, units, strict=True)]
        made = [Made(result.text, flags=result.flags) for result in bridge.keep(jobs)]
    return made


def _answer(source: str, made: Translation) -> Answer:
    """A translation with the white space around its source."""
    before, after = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    text = before + made.text.strip() + after
    return Answer(text, _distinct((before + each.text.strip() + after for each in made.alternatives), text), made)


def _distinct(texts: Iterable[str], best: str) -> tuple[str, ...]:
    """Each text once, without the best and without empty ones."""
    return tuple(text for text in dict.fromkeys(texts) if text.strip() and text != best)


def _for_the_way(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """The options of a step that is not the last."""
    return tuple(option for option in options if option[0] not in ("alternatives", "alignment", "glossary"))
