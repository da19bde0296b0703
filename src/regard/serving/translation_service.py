"""Translates texts, pages and documents with the served models, and keeps their protected pieces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import DataError, InputError
from regard.faithful.document_translation import Made, fill
from regard.faithful.faithful_translation import Faithful, Job, Result
from regard.files.formats import Unit, format_by_suffix as files
from regard.serving import html_text, language_codes
from regard.tokens import protected_pieces as protect
from regard.tokens.directions import Direction

if TYPE_CHECKING:
    from regard.decoding.translator import Translation
    from regard.serving.served_models import Models
    from regard.serving.task_queues import TranslatorQueue

T = TypeVar("T")

THREADS = 64
"""Texts with protected pieces, and documents, that are worked on at once; their threads wait most of the time."""


@dataclass(frozen=True)
class TranslationCall:
    """The client of a translation, its deadline, and its options."""

    client: str = ""
    deadline: float | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Answer:
    """A translation and its details."""

    text: str
    alternatives: tuple[str, ...] = ()
    translation: Translation | None = None  # what the model thought of it, if it was asked
    flags: tuple[str, ...] = ()  # what a person has to look at


class TranslationService:
    """Translates with the served models, through a pivot language if that is allowed."""

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
        """All languages, source languages first."""
        return list(dict.fromkeys([*self.sources, *(each.target for each in self.models.directions)]))

    def targets(self, source: str) -> list[str]:
        """Returns the languages that one can be translated into."""
        return [each for each in self.languages if each != source and self.way(source, each)]

    def way(self, source: str, target: str) -> list[Direction]:
        """Returns the steps from one language to another; an empty list if there is no way."""
        known = self.models.directions
        for steps in ([(source, target)], [(source, self.pivot), (self.pivot, target)] if self.pivot else []):
            found = [each for step in steps for each in known if (each.source, each.target) == step]
            if steps and len(found) >= len(steps):
                return list(dict.fromkeys(found))
        return []

    # What is translated

    async def texts(self, texts: Sequence[str], way: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates plain texts; of several steps, the alternatives are those of the last one."""
        return await self._jobs([Job(text) for text in texts], way, call)

    async def pages(self, pages: Sequence[str], way: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates HTML, and keeps all of its markup."""
        cut = [html_text.cut(page) for page in pages]
        jobs = [Job(run.text, run.marks) for runs in cut for run in runs if run.words]
        made = iter(await self._jobs(jobs, way, call))
        answers = []
        for runs in cut:
            found = [(run, next(made) if run.words else None) for run in runs]
            text = "".join(
                run.text if answer is None else html_text.safe(answer.text, run.marks) for run, answer in found
            )
            flags = dict.fromkeys(flag for _, answer in found if answer for flag in answer.flags)
            answers.append(Answer(text, flags=tuple(flags)))
        return answers

    async def document(self, path: Path, way: Sequence[Direction], call: TranslationCall) -> bytes:
        """Returns a file with translations of all its units that have no finished ones."""
        bridges = [self._bridge(step, call) for step in way]

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

    async def _jobs(self, jobs: Sequence[Job], way: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates each job through each step."""
        answers = [Answer(job.text) for job in jobs]
        for step in way:
            now = call if step is way[-1] else replace(call, options=_for_the_way(call.options))
            todo = [Job(answer.text, job.marks) for job, answer in zip(jobs, answers, strict=True)]
            found = await self._step(todo, step, now)
            answers = [
                replace(each, flags=tuple(dict.fromkeys([*before.flags, *each.flags])))
                for each, before in zip(found, answers, strict=True)
            ]
        return answers

    async def _step(self, jobs: Sequence[Job], step: Direction, call: TranslationCall) -> list[Answer]:
        """Translates jobs with protected pieces in a thread that can translate again, and plain texts at once."""
        guarded = [bool(protect.find(job.text, job.marks)) for job in jobs]
        if not any(guarded):
            return await self._plain([job.text for job in jobs], step, call)
        kept, plain = await asyncio.gather(
            self._kept([job for job, has in zip(jobs, guarded, strict=True) if has], step, call),
            self._plain([job.text for job, has in zip(jobs, guarded, strict=True) if not has], step, call),
        )
        sides = {True: iter(kept), False: iter(plain)}
        return [next(sides[has]) for has in guarded]

    async def _plain(self, texts: Sequence[str], step: Direction, call: TranslationCall) -> list[Answer]:
        """Translates texts without protected pieces; keeps white space around them, and texts without words."""
        worth = [text for text in texts if any(map(str.isalpha, text))]
        bridge = self._bridge(step, call)
        made = iter(await bridge.wait_for(worth, **bridge.options) if worth else [])
        return [_answer(text, next(made)) if any(map(str.isalpha, text)) else Answer(text) for text in texts]

    async def _kept(self, jobs: Sequence[Job], step: Direction, call: TranslationCall) -> list[Answer]:
        """Translates texts and keeps exactly the protected pieces of their sources."""
        bridge = self._bridge(step, call)
        results = await self._in_thread([bridge], lambda: bridge.keep(jobs))
        answers = []
        for job, result in zip(jobs, results, strict=True):
            wanted = protect.counts(job.text, job.marks)
            others = result.translation.alternatives if result.translation else ()
            fitting = [each.text for each in others if protect.counts(each.text, job.marks) == wanted]
            answers.append(Answer(result.text, _distinct(fitting, result.text), result.translation, result.flags))
        return answers

    def _bridge(self, step: Direction, call: TranslationCall) -> Bridge:
        return Bridge(self.models.queue(step), step, call)

    async def _in_thread(self, bridges: Sequence[Bridge], work: Callable[[], T]) -> T:
        """Runs work in a thread that translates over these bridges; closes them when nobody waits any longer."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        finally:
            for bridge in bridges:
                bridge.close()


class Bridge:
    """Gives threads a translator whose texts wait in the queue with those of all clients."""

    def __init__(self, queue: TranslatorQueue, step: Direction, call: TranslationCall) -> None:
        self.queue, self.step, self.call = queue, step, call
        self.loop = asyncio.get_running_loop()
        self.waiting: Future[list[Translation]] | None = None
        self.closed, self.lock = False, threading.Lock()
        self.target = queue.translator.target
        self.direction, self.decoding = queue.translator.direction, queue.translator.decoding

    @property
    def options(self) -> dict[str, Any]:
        return {**dict(self.call.options), "source": self.step.source, "target": self.step.target}

    async def wait_for(self, texts: Sequence[Any], **options: Any) -> list[Translation]:
        """Translates texts when it is their turn."""
        return await self.queue.translate(texts, client=self.call.client, deadline=self.call.deadline, **options)

    def keep(self, jobs: Sequence[Job]) -> list[Result]:
        """Translates with exactly the protected pieces of the sources; runs in a thread."""
        return list(Faithful(self).translate(jobs, **self.options))

    def translate(self, texts: Iterable[Any], **options: Any) -> list[Translation]:
        """Translates; runs in a thread. Refuses a second, constrained search, which takes longer than clients wait."""
        if options.get("constrain") is not None:
            raise InputError("a server has no time for a second search")
        with self.lock:
            if self.closed:
                raise CancelledError
            self.waiting = asyncio.run_coroutine_threadsafe(self.wait_for(list(texts), **options), self.loop)
        return self.waiting.result()

    def close(self) -> None:
        """Cancels what is awaited, and ends the thread when it asks again."""
        with self.lock:
            self.closed = True
            if self.waiting is not None:
                self.waiting.cancel()


def _made(units: Sequence[Unit], bridges: Sequence[Bridge]) -> list[Made]:
    """Translates units through each step; runs in a thread."""
    made = [Made(unit.source) for unit in units]
    for bridge in bridges:
        jobs = [Job(each.text, unit.marks) for each, unit in zip(made, units, strict=True)]
        made = [Made(result.text, flags=result.flags) for result in bridge.keep(jobs)]
    return made


def _answer(source: str, made: Translation) -> Answer:
    """Returns a translation with the white space around its source."""
    before, after = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    text = before + made.text.strip() + after
    return Answer(text, _distinct((before + each.text.strip() + after for each in made.alternatives), text), made)


def _distinct(texts: Iterable[str], best: str) -> tuple[str, ...]:
    """Returns each text once, without the best and without empty ones."""
    return tuple(text for text in dict.fromkeys(texts) if text.strip() and text != best)


def _for_the_way(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Returns the options of a step that is not the last."""
    return tuple(option for option in options if option[0] not in ("alternatives", "alignment", "glossary"))
