"""Translates texts, HTML pages and documents with the served models, and preserves placeholders and tags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from regard.decoding.read_ahead import is_unwanted
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Part, Translator
from regard.errors import InputError
from regard.faithful.faithful_translation import Faithful, FaithfulResult, MarkedText
from regard.serving import html_text, language_codes
from regard.serving.batchers import Item, Kind, SmallBatcher, continuous_engine, continuous_kind
from regard.serving.client_limits import Deadlines
from regard.serving.document_processes import DocumentProcesses
from regard.serving.refusals import RefusedError
from regard.serving.scheduler import MAX_WAITING, SLICE, Scheduler
from regard.settings import DecodingSettings
from regard.tokens import protected_pieces
from regard.tokens.language_directions import Direction
from regard.tokens.placeholder_slots import CutText

if TYPE_CHECKING:
    from regard.serving.served_models import Models

SMALL = 2_000
"""Number of characters up to which texts are tokenized without a thread, which would take longer to wake up."""
THREADS = 64
"""Number of requests with protected pieces that run in parallel; their threads mostly wait for the model."""
SHORT_PAGE = 4_000
"""Number of characters up to which HTML is parsed without a separate process, which would take longer to start."""
LAST_STEP_OPTIONS = ("alternatives", "alignment", "glossary")
"""Options that apply only to the last step of a translation, not to the translation into the pivot language."""

T = TypeVar("T")


@dataclass(frozen=True)
class TranslationCall:
    """The client, deadline and options of a translation."""

    client: str = ""
    deadline: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A translation and its details."""

    text: str
    alternatives: tuple[str, ...] = ()
    translation: Translation | None = None  # None if the model did not translate the text
    flags: tuple[str, ...] = ()  # notes for a reviewer


class TranslationPlan(NamedTuple):
    """The settings for translating the texts of a request."""

    settings: DecodingSettings
    target: str  # target language
    kind: Kind


class TranslatorQueue(Scheduler):
    """Translates the texts of many clients with one model."""

    def __init__(self, translator: Translator, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting)
        self.translator = translator
        self._cached_plan = lru_cache(256)(self._plan)

    async def translate(
        self, texts: Sequence[str | CutText], *, client: str = "", deadline: float | None = None, **options: Any
    ) -> list[Translation]:
        """Translates texts; `options` are those of `Translator.translate`.

        Clients take turns, and so do the requests of one `client`. `deadline` is compared with `time.monotonic()`.
        Raises BusyError if too many texts are waiting, and LateError after the deadline.
        """
        can_cache = options.get("constrain") is None and not options.get("glossary")
        plan = (self._cached_plan if can_cache else self._plan)(tuple(options.items()))
        async with self.admit(len(texts), client, deadline) as request:
            if not plan.kind.continuous:
                request.add([Item(plan.kind, text) for text in texts], len(texts))
                return await request.results()
            small = sum(len(text if isinstance(text, str) else text.text) for text in texts) <= SMALL
            rows: list[list[Part]] = []
            for start in range(0, len(texts), SLICE):
                some = await self._run(small, self._read, texts[start : start + SLICE], start, plan.target)
                request.add([self._item(part, plan) for row in some for part in row if part.ids], len(some))
                rows += some
            results = iter(await request.results())
            pairs = [[(part, next(results) if part.ids else None) for part in row] for row in rows]
            joined: list[Translation] = []
            for start in range(0, len(pairs), SLICE):
                some_pairs = pairs[start : start + SLICE]
                joined += await self._run(small, lambda each: list(map(self.translator.join, each)), some_pairs)
            return joined

    def _plan(self, given: tuple[tuple[str, Any], ...]) -> TranslationPlan:
        """Validates the options and chooses how the texts are batched."""
        options = dict(given)
        direction = {name: options.pop(name) for name in ("source", "target", "zero_shot") if name in options}
        constrain, glossary = options.pop("constrain", None), options.pop("glossary", None)
        settings, target = self.translator.decoding(options), self.translator.direction(**direction).target
        engine = continuous_engine(self.translator.searcher)
        if engine is not None and constrain is None and not glossary and not settings.consensus:
            return TranslationPlan(settings, target, continuous_kind(engine, settings))

        # PyTorch decodes constraints for the native engine; its results depend on the batch unless it has one text
        asked = dict(given) if engine is None else {**dict(given), "batch_tokens": 1}

        def translate(items: list[Item]) -> list[Translation]:
            return self.translator.translate([item.source for item in items], **asked)

        key = (*sorted((direction | options).items()), id(constrain), id(glossary))  # both outlive the batcher
        kind = Kind(key, lambda report: SmallBatcher(translate, report, self.slots))
        return TranslationPlan(settings, target, kind)

    async def _run(self, small: bool, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a function, in a thread unless `small` is true, and returns its result."""
        return work(*arguments) if small else await self.in_thread(work, *arguments)

    def _read(self, texts: Sequence[str | CutText], start: int, target: str) -> list[list[Part]]:
        return [self.translator.read(number, text, target) for number, text in enumerate(texts, start + 1)]

    def _item(self, part: Part, plan: TranslationPlan) -> Item:
        limit = self.translator.limit(part.ids, plan.settings)
        return Item(plan.kind, part.ids, len(part.ids), limit, plan.settings)

    def tokens_written(self, result: Any) -> int:
        if isinstance(result, Translation):
            return len(result.tokens)
        return len(result[0].tokens) if result else 0


class TranslationService:
    """Translates with the served models, through a pivot language if one is set."""

    def __init__(self, models: Models, pivot: str | None = None, deadlines: Deadlines | None = None) -> None:
        """Registers its work on documents with `deadlines`, so that it ends early when the server stops."""
        self.models, self.deadlines, self.processes = models, deadlines or Deadlines(), DocumentProcesses()
        self.pivot = None if pivot is None else language_codes.find(pivot, self.languages)
        if pivot is not None and self.pivot is None:
            raise InputError(f"--pivot {pivot}: no model translates from or into this language")
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
        """Returns the languages into which `source` can be translated."""
        return [each for each in self.languages if each != source and self.steps(source, each)]

    def steps(self, source: str, target: str) -> list[Direction]:
        """Returns the direction between two languages, or two directions through the pivot language, or nothing."""
        steps = [Direction(source, target)]
        if steps[0] not in self.models.directions and self.pivot:
            steps = [Direction(source, self.pivot), Direction(self.pivot, target)]
        return steps if set(steps) <= set(self.models.directions) else []

    async def texts(self, texts: Sequence[str], steps: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates plain texts; alternatives are returned for the last step only."""
        return await self._translate([MarkedText(text) for text in texts], steps, call)

    async def pages(self, pages: Sequence[str], steps: Sequence[Direction], call: TranslationCall) -> list[Answer]:
        """Translates HTML pages and preserves their markup."""
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
        """Splits a page into runs; a long page is parsed in a separate process."""
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
        """Returns a document in which all units without a finished translation are translated."""
        ends = str(path), steps[0].source, steps[-1].target
        found, _ = await self._run_process(call, "list_units", *ends)
        jobs = [MarkedText(text, tuple(marks)) for _, text, marks in found["units"]]
        characters = sum(len(job.text) for job in jobs)
        if 0 <= max_characters < characters:
            raise RefusedError(400, f"Invalid request: request ({characters}) exceeds text limit ({max_characters})")
        distinct = list(dict.fromkeys(jobs))
        async with self.deadlines.until(call.deadline):
            translated = await self._translate(distinct, steps, call, keep_all=True)
        answers = dict(zip(distinct, translated, strict=True))
        texts = {number: answers[job].text for (number, *_), job in zip(found["units"], jobs, strict=True)}
        _, content = await self._run_process(call, "render", *ends, texts)
        return content

    async def _run_process(self, call: TranslationCall, function: str, *arguments: Any) -> tuple[Any, bytes]:
        async with self.deadlines.until(call.deadline):
            return await self.processes.run(function, *arguments)

    async def _translate(
        self, jobs: Sequence[MarkedText], steps: Sequence[Direction], call: TranslationCall, *, keep_all: bool = False
    ) -> list[Answer]:
        """Translates each job in each step; with `keep_all`, also checks texts without protected pieces."""

        @cache
        def is_guarded(job: MarkedText) -> bool:
            return keep_all or bool(protected_pieces.find(job.text, job.marks))

        answers = [Answer(job.text) for job in jobs]
        for step in steps:
            options = {n: v for n, v in call.options.items() if step is steps[-1] or n not in LAST_STEP_OPTIONS}
            queue = self.models.queue(step)
            step_call = replace(call, options={**options, "source": step.source, "target": step.target})
            todo = [MarkedText(answer.text, job.marks) for job, answer in zip(jobs, answers, strict=True)]
            kept, plain = await asyncio.gather(
                self._keep([job for job in todo if is_guarded(job)], queue, step_call),
                _translate_plain([job.text for job in todo if not is_guarded(job)], queue, step_call),
            )
            results = {True: iter(kept), False: iter(plain)}
            for number, job in enumerate(todo):
                answer = next(results[is_guarded(job)])
                flags = dict.fromkeys([*answers[number].flags, *answer.flags])
                answers[number] = replace(answer, flags=tuple(flags))
        return answers

    async def _keep(self, jobs: Sequence[MarkedText], queue: TranslatorQueue, call: TranslationCall) -> list[Answer]:
        """Translates texts and preserves their protected pieces, in a thread that waits for the queue."""
        if not jobs:
            return []
        loop, ended = asyncio.get_running_loop(), False
        waiting: asyncio.Task[Any] | None = None

        async def wait(texts: Sequence[str | CutText], options: Mapping[str, Any]) -> list[Translation]:
            nonlocal waiting
            if ended:
                raise asyncio.CancelledError
            waiting = asyncio.current_task()
            return await queue.translate(texts, client=call.client, deadline=call.deadline, **options)

        def translate(texts: Sequence[str | CutText], **options: Any) -> list[Translation]:
            return asyncio.run_coroutine_threadsafe(wait(texts, options), loop).result()

        def work() -> list[FaithfulResult]:
            is_unwanted.set(lambda: ended)
            return list(Faithful(queue.translator, queued=translate).translate(jobs, **call.options))

        try:
            results = await loop.run_in_executor(self.threads, work)
        finally:
            ended = True
            if waiting is not None:
                waiting.cancel()
        answers = []
        for job, result in zip(jobs, results, strict=True):
            counts = protected_pieces.counts(job.text, job.marks)
            others = result.translation.alternatives if result.translation else ()
            texts = [each.text for each in others if protected_pieces.counts(each.text, job.marks) == counts]
            answers.append(Answer(result.text, _distinct(texts, result.text), result.translation, result.flags))
        return answers


async def _translate_plain(texts: Sequence[str], queue: TranslatorQueue, call: TranslationCall) -> list[Answer]:
    """Translates texts without protected pieces; does not change white space around them and texts without letters."""
    lettered = [text for text in texts if any(map(str.isalpha, text))]
    translations = iter(
        await queue.translate(lettered, client=call.client, deadline=call.deadline, **call.options) if lettered else []
    )
    return [_answer(text, next(translations)) if any(map(str.isalpha, text)) else Answer(text) for text in texts]


def _answer(source: str, translation: Translation) -> Answer:
    """Returns a translation with the white space around its source."""
    before, after = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
    text, *others = (before + each.text.strip() + after for each in (translation, *translation.alternatives))
    return Answer(text, _distinct(others, text), translation)


def _distinct(texts: Iterable[str], best: str) -> tuple[str, ...]:
    """Removes duplicates, empty texts and the best translation."""
    return tuple(text for text in dict.fromkeys(texts) if text.strip() and text != best)
