"""The queues of models by task: each turns requests into items, and the results of items into answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from regard.decoding.hypotheses import Hypothesis
from regard.decoding.native.continuous_search import Follow
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.prefetch import end_if_unwanted
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Part, Translator
from regard.serving.batchers import ContinuousBatcher, Item, Kind, SmallBatcher
from regard.serving.scheduler import MAX_WAITING, Scheduler, until
from regard.settings import DecodingSettings
from regard.tokens.slot_tokens import CutText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.decoding.fill_classify_embed import (
        Classifier,
        EncoderInput,
        Filler,
        GapFilling,
        Label,
        Reader,
        Text,
    )
    from regard.decoding.writer import Writer

SLICE = 64
"""Texts of a request that are tokenized at once: other requests have their turn in between."""
SMALL = 2_000
"""Characters that are tokenized faster than a thread wakes up."""
PARALLEL = 4
"""Small batches of a writer that run side by side: a long text keeps nobody waiting for its end."""
READ_TOGETHER = 64
"""Texts in a batch of an encoder."""
READ_TOKENS = 4_096
"""Tokens that an encoder reads before it looks whether anybody still waits."""

T = TypeVar("T")


class TranslationPlan(NamedTuple):
    """The settings with which the texts of a request are translated."""

    settings: DecodingSettings
    target: str  # language
    kind: Kind


class TranslatorQueue(Scheduler):
    """Translates with one model for any number of clients."""

    def __init__(self, translator: Translator, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting)
        self.translator = translator
        self._cached_plan = lru_cache(256)(self._plan)

    async def translate(
        self, texts: Sequence[str | CutText], *, client: str = "", deadline: float | None = None, **options: Any
    ) -> list[Translation]:
        """Translates texts, with the options of `Translator.translate`.

        Clients take turns, and so do the requests of one `client`. `deadline` is a time of `time.monotonic`.
        Raises BusyError when too many texts wait, and LateError past the deadline; a cancelled call leaves the batch.
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
        """Checks the options and chooses the batches."""
        options = dict(given)
        direction = {name: options.pop(name) for name in ("source", "target", "zero_shot") if name in options}
        constrain, glossary = options.pop("constrain", None), options.pop("glossary", None)
        settings, target = self.translator.decoding(options), self.translator.direction(**direction).target
        engine = continuous_engine(self.translator.searcher)
        if engine is not None and constrain is None and not glossary and not settings.consensus:
            return TranslationPlan(settings, target, continuous_kind(engine, settings))

        def translate(items: list[Item]) -> list[Translation]:
            return self.translator.translate([item.source for item in items], **dict(given))

        key = (*sorted((direction | options).items()), id(constrain), id(glossary))  # both outlive the batcher
        kind = Kind(key, lambda report: SmallBatcher(translate, report, self.slots))
        return TranslationPlan(settings, target, kind)

    async def _run(self, small: bool, work: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of some work, which runs in a thread unless it is small."""
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


class WriterQueue(Scheduler):
    """Continues prompts with one model for any number of clients."""

    def __init__(self, writer: Writer, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting, parallel=PARALLEL)
        self.writer = writer

    async def write(
        self,
        prompts: Sequence[Sequence[int]],
        settings: DecodingSettings,
        follow: Sequence[Follow | None],
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the best outputs for each prompt; `follow` is called for each token of it, and can end an output."""
        items = [self._item(*each, settings) for each in zip(prompts, follow, strict=True)]
        async with self.admit(len(items), client, deadline) as request:
            request.add(items, len(items))
            return await request.results()

    async def stream(
        self,
        prompt: Sequence[int],
        settings: DecodingSettings,
        follow: Callable[[Sequence[int]], tuple[T, bool]],
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> AsyncGenerator[T | Hypothesis, None]:
        """Yields what `follow` returns for each token, with whether the output ends there, and then the output."""
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[T | None]()

        def follow_and_put(tokens: Sequence[int]) -> bool:
            piece, ends = follow(tokens)
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return ends

        async with self.admit(1, client) as request:
            request.add([self._item(prompt, follow_and_put, settings)], 1)
            results = asyncio.ensure_future(request.results())
            results.add_done_callback(lambda _: pieces.put_nowait(None))
            try:
                while True:
                    async with until(deadline):  # not around the `yield`, where the caller's work would be cancelled
                        piece = await pieces.get()
                    if piece is None:
                        break
                    yield piece
                yield (await results)[0][0]
            finally:
                if not results.cancel():
                    results.exception()  # so that asyncio does not report it as never retrieved

    async def likeliest(
        self, texts: Sequence[Sequence[int]], count: int, *, client: str = "", deadline: float | None = None
    ) -> list[list[tuple[float, list[tuple[int, float]]]]]:
        """Returns for each token of each text but its first the log-probability, and the likeliest tokens there."""

        def read(items: list[Item]) -> list[Any]:
            results = []
            for item in items:
                end_if_unwanted()
                many = len(item.source) > 1
                results.append(self.writer.searcher.likeliest(item.source, count) if many else [])
            return results

        kind = Kind(("likeliest", count), lambda report: SmallBatcher(read, report, self.slots))
        async with self.admit(len(texts), client, deadline) as request:
            request.add([Item(kind, ids, len(ids)) for ids in texts], len(texts))
            return await request.results()

    def _item(self, prompt: Sequence[int], follow: Follow | None, settings: DecodingSettings) -> Item:
        engine = continuous_engine(self.writer.searcher)
        kind = continuous_kind(engine, settings, followed=True) if engine else self._small_kind(settings)
        shape = len(prompt), settings.seed if settings.temperature else None
        return Item(kind, prompt, len(prompt), settings.max_tokens, settings, follow, shape)

    def _small_kind(self, settings: DecodingSettings) -> Kind:
        """Returns the kind of prompts that are searched for in small batches."""

        def search(items: list[Item]) -> list[list[Hypothesis]]:
            def enough(number: int, tokens: Sequence[int]) -> bool:
                item = items[number]
                return item.batcher is None or (item.follow is not None and item.follow(tokens))

            rows, limits, same = [item.source for item in items], [item.limit for item in items], items[0].settings
            assert same is not None
            return self.writer.searcher.search(rows, limits, same, enough)

        return Kind(
            shared_settings(settings), lambda report: SmallBatcher(search, report, self.slots, threads=PARALLEL)
        )

    def tokens_written(self, result: Any) -> int:
        return sum(len(each.tokens) for each in result if isinstance(each, Hypothesis))


class EncoderQueue(Scheduler):
    """Embeds texts, fills their gaps or labels them with one model for any number of clients."""

    def __init__(self, reader: Reader, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting)
        self.reader = reader

    async def embed(self, texts: Sequence[str], **client: Any) -> tuple[list[NDArray[np.float32]], int]:
        """Returns a vector for each text, and the number of tokens read."""
        return await self._read("embed", texts, self.reader.rows, self.reader.embed_rows, **client)

    async def fill(self, texts: Sequence[str], count: int, **client: Any) -> list[list[list[GapFilling]]]:
        """Returns for each gap of each text the most probable tokens; the model must be one that fills gaps."""
        filler = cast("Filler", self.reader)
        fill_rows = partial(filler.fill_rows, count=count)
        return (await self._read(("fill", count), texts, filler.gap_rows, fill_rows, **client))[0]

    async def label(self, texts: Sequence[Text], **client: Any) -> list[Label]:
        """Returns the label of each text or pair of texts; the model must be one that classifies them."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("label", texts, classifier.rows, classifier.label_rows, **client))[0]

    async def label_words(self, texts: Sequence[Sequence[str]], **client: Any) -> list[list[Label]]:
        """Returns the label of each word of each text; the model must be one that classifies words."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("words", texts, classifier.word_rows, classifier.label_word_rows, **client))[0]

    async def _read(
        self,
        key: Hashable,
        texts: Sequence[Any],
        tokenize: Callable[[Sequence[Any]], list[EncoderInput]],
        use: Callable[[Sequence[EncoderInput]], Iterable[Any]],
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> tuple[list[Any], int]:
        """Returns what `use` computes for each text, and the number of tokens read."""

        def run(items: list[Item]) -> list[Any]:
            results: list[Any] = []
            together = max(1, READ_TOKENS // max(item.tokens_read for item in items))
            for start in range(0, len(items), together):
                end_if_unwanted()
                results.extend(use([item.source for item in items[start : start + together]]))
            return results

        kind = Kind(key, lambda report: SmallBatcher(run, report, self.slots, size=READ_TOGETHER))
        async with self.admit(len(texts), client, deadline) as request:
            rows: list[EncoderInput] = []
            for start in range(0, len(texts), SLICE):
                some = await self.in_thread(tokenize, texts[start : start + SLICE])
                request.add([Item(kind, row, len(row.ids)) for row in some], len(some))
                rows += some
            return await request.results(), sum(len(row.ids) for row in rows)


def continuous_engine(search: object) -> NativeSearch | None:
    """Returns the engine if sentences can join its running searches."""
    return search if isinstance(search, NativeSearch) else None


def continuous_kind(engine: NativeSearch, settings: DecodingSettings, *, followed: bool = False) -> Kind:
    """Returns the kind of items that share a running search with these settings."""
    shared = shared_settings(settings)
    return Kind(shared, lambda report: ContinuousBatcher(engine, shared, report, followed=followed), continuous=True)


def shared_settings(settings: DecodingSettings) -> DecodingSettings:
    """Returns the settings without those that may differ within a search: the seed, and what makes the limit."""
    common = DecodingSettings()
    differing = ("seed", "max_tokens", "max_ratio", "batch_tokens")
    return replace(settings, **{name: getattr(common, name) for name in differing})
