"""Translates texts, pages and documents with the served models, and keeps their protected pieces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.decoding.prefetch import is_unwanted
from regard.errors import InputError
from regard.faithful.faithful_translation import Faithful, FaithfulResult, MarkedText
from regard.serving import html_text, language_codes
from regard.serving.client_limits import Deadlines
from regard.serving.document_processes import DocumentProcesses
from regard.serving.refusals import LateError, RefusedError
from regard.tokens import protected_pieces
from regard.tokens.directions import Direction

if TYPE_CHECKING:
    from regard.decoding.translation_results import Translation
    from regard.serving.served_models import Models
    from regard.serving.task_queues import TranslatorQueue

THREADS = 64
"""Requests with protected pieces that are worked on at once; their threads wait most of the time."""
SHORT_PAGE = 4_000
"""Characters of HTML that are read faster than a process starts."""
LAST_STEP_OPTIONS = ("alternatives", "alignment", "glossary")
"""Options without effect on the way to the pivot language."""


@dataclass(frozen=True)
class TranslationCall:
    """The client of a translation, its deadline, and its options."""

    client: str = ""
    deadline: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A translation and its details."""

    text: str
    alternatives: tuple[str, ...] = ()
    translation: Translation | None = None  # with scores; none of a text that the model did not translate
    flags: tuple[str, ...] = ()  # notes for a reviewer


class TranslationService:
    """Translates with the served models, through a pivot language if one is set."""

    def __init__(self, models: Models, pivot: str | None = None, deadlines: Deadlines | None = None) -> None:
        """Ends its work on documents with `deadlines`."""
        self.models, self.deadlines, self.processes = models, deadlines or Deadlines(), DocumentProcesses()
        self.pivot = None if pivot is None else language_codes.find(pivot, self.languages)
        if pivot is not None and self.pivot is None:
            raise InputError(f"--pivot {pivot}: no model knows this language")
        self.threads = ThreadPoolExecutor(THREADS, "regard-texts")

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(each.source for each in self.models.directions))

    @property
    def languages(self) -> list[str]:
        """All languages, source languages first."""
        return list(dict.fromkeys([*self.sources, *(each.target for each in self.models.directions)]))

    def targets(self, source: str) -> list[str]:
        """Returns the languages that one can be translated into."""
        return [each for each in self.languages if each != source and self.steps(source, each)]

    def steps(self, source: str, target: str) -> list[Direction]:
        """Returns the direction between two languages, or two through the pivot; an empty list if there are none."""
        steps = [Direction(source, target)]
        if steps[0] not in self.models.directions and self.pivot:
            steps = [Direction(source, self.pivot), Direction(self.pivot, target)]
        return steps if set(steps) <= set(self.models.directions) else []

    async def texts(self, texts: Sequence[str], steps: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates plain texts; the alternatives are those of the last step."""
        return await self._translate([MarkedText(text) for text in texts], steps, call)

    async def pages(self, pages: Sequence[str], steps: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates HTML, and keeps all of its markup."""
        cut = [await self._cut(page, call) for page in pages]
        jobs = [MarkedText(run.text, run.marks) for runs in cut for run in runs if run.words]
        translated = iter(await self._translate(jobs, steps, call))
        answers = []
        for runs in cut:
            text, flags = "", dict[str, None]()
            for run in runs:
                answer = next(translated) if run.words else Answer(run.text)
                text += html_text.safe(answer.text, run.marks) if run.words else run.text
                flags |= dict.fromkeys(answer.flags)
            answers.append(Answer(text, flags=tuple(flags)))
        return answers

    async def _cut(self, page: str, call: TranslationCall) -> list[html_text.HtmlRun]:
        """Returns the runs of a page; a long one is read in a process of its own."""
        if len(page) <= SHORT_PAGE:
            return html_text.cut(page)
        runs, _ = await self._run_process(call, "cut_page", page)
        return [html_text.HtmlRun(text, tuple(marks), words) for text, marks, words in runs]

    async def document_sample(self, path: Path, call: TranslationCall) -> list[str]:
        """Returns the first texts of a document."""
        found, _ = await self._run_process(call, "list_units", str(path))
        return list(found["sample"])

    async def document(
        self, path: Path, steps: Sequence[Direction], call: TranslationCall, max_characters: int = -1
    ) -> bytes:
        """Returns a file with translations of all its units that have no finished ones."""
        ends = str(path), steps[0].source, steps[-1].target
        found, _ = await self._run_process(call, "list_units", *ends)
        jobs = [MarkedText(text, tuple(marks)) for _, text, marks in found["units"]]
        characters = sum(len(job.text) for job in jobs)
        if 0 <= max_characters < characters:
            raise RefusedError(400, f"Invalid request: request ({characters}) exceeds text limit ({max_characters})")
        distinct = list(dict.fromkeys(jobs))
        async with self._deadline(call):
            translated = await self._translate(distinct, steps, call, keep_all=True)
        answers = dict(zip(distinct, translated, strict=True))
        texts = {number: answers[job].text for (number, *_), job in zip(found["units"], jobs, strict=True)}
        _, content = await self._run_process(call, "render", *ends, texts)
        return content

    async def _run_process(self, call: TranslationCall, function: str, *arguments: Any) -> tuple[Any, bytes]:
        async with self._deadline(call):
            return await self.processes.run(function, *arguments)

    @asynccontextmanager
    async def _deadline(self, call: TranslationCall) -> AsyncIterator[None]:
        try:
            async with self.deadlines.until(call.deadline):
                yield
        except TimeoutError:
            raise LateError("the answer was not ready in time: send less at once, or try again later") from None

    async def _translate(
        self, jobs: Sequence[MarkedText], steps: Sequence[Direction], call: TranslationCall, *, keep_all: bool = False
    ) -> list[Answer]:
        """Translates each job through each step; with `keep_all`, checks texts without protected pieces as well."""
        answers = [Answer(job.text) for job in jobs]
        for step in steps:
            options = {n: v for n, v in call.options.items() if step is steps[-1] or n not in LAST_STEP_OPTIONS}
            queue = self.models.queue(step)
            bridge = Bridge(queue, replace(call, options={**options, "source": step.source, "target": step.target}))
            todo = [MarkedText(answer.text, job.marks) for job, answer in zip(jobs, answers, strict=True)]
            guarded = [keep_all or bool(protected_pieces.find(job.text, job.marks)) for job in todo]
            kept, plain = await asyncio.gather(
                self._keep([job for job, guard in zip(todo, guarded, strict=True) if guard], bridge),
                translate_plain([job.text for job, guard in zip(todo, guarded, strict=True) if not guard], bridge),
            )
            results = {True: iter(kept), False: iter(plain)}
            for number, guard in enumerate(guarded):
                answer = next(results[guard])
                flags = dict.fromkeys([*answers[number].flags, *answer.flags])
                answers[number] = replace(answer, flags=tuple(flags))
        return answers

    async def _keep(self, jobs: Sequence[MarkedText], bridge: Bridge) -> list[Answer]:
        """Translates texts and keeps exactly their protected pieces, in a thread that can translate several times."""
        if not jobs:
            return []

        def work() -> list[FaithfulResult]:
            is_unwanted.set(lambda: bridge.closed)
            return list(Faithful(bridge).translate(jobs, **bridge.call.options))

        try:
            results = await asyncio.get_running_loop().run_in_executor(self.threads, work)
        finally:
            bridge.close()
        answers = []
        for job, result in zip(jobs, results, strict=True):
            counts = protected_pieces.counts(job.text, job.marks)
            others = result.translation.alternatives if result.translation else ()
            texts = [each.text for each in others if protected_pieces.counts(each.text, job.marks) == counts]
            answers.append(Answer(result.text, _distinct(texts, result.text), result.translation, result.flags))
        return answers


class Bridge:
    """Lets a thread translate texts, which wait in the queue with those of all clients."""

    def __init__(self, queue: TranslatorQueue, call: TranslationCall) -> None:
        self.queue, self.call = queue, call
        self.loop = asyncio.get_running_loop()
        self.waiting: Future[list[Translation]] | None = None
        self.closed, self.lock = False, threading.Lock()
        self.target = queue.translator.target
        self.direction, self.decoding = queue.translator.direction, queue.translator.decoding

    async def wait_for(self, texts: Sequence[Any], **options: Any) -> list[Translation]:
        """Translates texts when it is their turn."""
        return await self.queue.translate(texts, client=self.call.client, deadline=self.call.deadline, **options)

    def translate(self, texts: Iterable[Any], **options: Any) -> list[Translation]:
        """Translates; runs in a thread. Refuses a second, constrained search, which takes longer than clients wait."""
        if options.get("constrain") is not None:
            raise InputError("the server makes no second search")
        with self.lock:
            if self.closed:
                raise CancelledError
            self.waiting = asyncio.run_coroutine_threadsafe(self.wait_for(list(texts), **options), self.loop)
        return self.waiting.result()

    def close(self) -> None:
        """Cancels what is awaited, and ends the thread when it translates again."""
        with self.lock:
            self.closed = True
            if self.waiting is not None:
                self.waiting.cancel()


async def translate_plain(texts: Sequence[str], bridge: Bridge) -> list[Answer]:
    """Translates texts without protected pieces; keeps the white space around them, and texts without letters."""
    lettered = [text for text in texts if any(map(str.isalpha, text))]
    translations = iter(await bridge.wait_for(lettered, **bridge.call.options) if lettered else [])
    return [_answer(text, next(translations)) if any(map(str.isalpha, text)) else Answer(text) for text in texts]


def _answer(source: str, translation: Translation) -> Answer:
    """Returns a translation with the white space around its source."""
    before, after = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    text, *others = (before + each.text.strip() + after for each in (translation, *translation.alternatives))
    return Answer(text, _distinct(others, text), translation)


def _distinct(texts: Iterable[str], best: str) -> tuple[str, ...]:
    """Returns each text once, without the best and without empty ones."""
    return tuple(text for text in dict.fromkeys(texts) if text.strip() and text != best)
