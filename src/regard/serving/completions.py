"""Continues prompts of many clients in shared batches, and returns texts, tokens and log-probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.decoding.native.continuous_search import Follow
from regard.decoding.read_ahead import end_if_unwanted
from regard.decoding.search_interface import Hypothesis
from regard.decoding.writer import Writer, first_stop, held_back
from regard.serving.batchers import Item, Kind, SmallBatcher, continuous_engine, continuous_kind, shared_settings
from regard.serving.scheduler import MAX_WAITING, Scheduler, until
from regard.settings import DecodingSettings

PARALLEL = 4
"""Number of small batches that run in parallel, so that a long text does not block other requests."""


@dataclass(frozen=True)
class Completion:
    """The text generated for a prompt, with its tokens."""

    text: str
    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    reason: str  # why the text ended: "stop" or "length"


class StreamedPiece(NamedTuple):
    """One part of a streamed completion."""

    text: str
    tokens: int  # number of tokens since the previous piece
    reason: str | None = None  # why the completion ended; set in its last piece


class Continuation:
    """Decodes the output for one prompt, and cuts it at the first stop text."""

    def __init__(self, writer: Writer, row: Sequence[int], stop: Sequence[str]) -> None:
        self.writer, self.row, self.stop = writer, row, stop
        self.prompt = writer.vocabulary.decode(row)

    def text(self, tokens: Sequence[int]) -> str:
        """Returns the text that the tokens add to the prompt, including a space at the beginning."""
        return self.writer.vocabulary.decode([*self.row, *tokens])[len(self.prompt) :]

    def ends(self, tokens: Sequence[int]) -> bool:
        """Reports whether the output contains a stop text."""
        return first_stop(self.text(tokens), self.stop) is not None

    def safe(self, text: str) -> str:
        """Returns the part of a text that further tokens cannot change; nothing after a stop text."""
        if text.endswith("\N{REPLACEMENT CHARACTER}") or first_stop(text, self.stop) is not None:
            return ""
        return text[: len(text) - held_back(text, self.stop)]

    def completion(self, output: Hypothesis) -> Completion:
        """Returns the output up to its first stop text."""
        text, ids = self.text(output.tokens), output.tokens
        cut = first_stop(text, self.stop)
        if cut is None:
            return Completion(text, ids, output.log_probabilities[: len(ids)], "stop" if output.finished else "length")
        count = next(n for n in range(len(ids) + 1) if len(self.text(ids[:n])) >= cut)
        return Completion(text[:cut], ids[:count], output.log_probabilities[:count], "stop")


class WriterQueue(Scheduler):
    """Continues the prompts of many clients with one model."""

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
        """Returns the best outputs for each prompt; `follow` is called for each new token, and can end an output."""
        items = [self._item(*each, settings) for each in zip(prompts, follow, strict=True)]
        async with self.admit(len(items), client, deadline) as request:
            request.add(items, len(items))
            return await request.results()

    async def complete(
        self, prompts: Sequence[Sequence[int]], stop: Sequence[str], settings: DecodingSettings, **client: Any
    ) -> list[list[Completion]]:
        """Returns the continuations of each prompt, best first, or in any order if they are sampled."""
        continuations = [Continuation(self.writer, prompt, stop) for prompt in prompts]
        outputs = await self.write(prompts, settings, [each.ends if stop else None for each in continuations], **client)

        def decode() -> list[list[Completion]]:
            return [list(map(each.completion, some)) for each, some in zip(continuations, outputs, strict=True)]

        return await self.in_thread(decode)

    async def stream(
        self,
        prompt: Sequence[int],
        stop: Sequence[str],
        settings: DecodingSettings,
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> AsyncGenerator[StreamedPiece, None]:
        """Yields one continuation piece by piece."""
        continuation = Continuation(self.writer, prompt, stop)
        loop, written = asyncio.get_running_loop(), asyncio.Queue[tuple[str, int] | None]()

        def follow(tokens: Sequence[int]) -> bool:
            text = continuation.text(tokens)
            loop.call_soon_threadsafe(written.put_nowait, (continuation.safe(text), len(tokens)))
            return first_stop(text, stop) is not None

        sent = counted = 0  # number of characters and tokens yielded so far
        async with self.admit(1, client) as request:
            request.add([self._item(prompt, follow, settings)], 1)
            results = asyncio.ensure_future(request.results())
            results.add_done_callback(lambda _: written.put_nowait(None))
            try:
                while True:
                    async with until(deadline):  # a timeout around `yield` would cancel the caller
                        piece = await written.get()
                    if piece is None:
                        break
                    text, count = piece
                    if len(text) > sent:
                        yield StreamedPiece(text[sent:], count - counted)
                        sent, counted = len(text), count
                whole = continuation.completion((await results)[0][0])
                yield StreamedPiece(whole.text[sent:], max(0, len(whole.ids) - counted), whole.reason)
            finally:
                if not results.cancel():
                    results.exception()  # asyncio would report it as never retrieved

    async def likeliest(
        self, texts: Sequence[Sequence[int]], count: int, *, client: str = "", deadline: float | None = None
    ) -> list[list[tuple[float, list[tuple[int, float]]]]]:
        """Returns, for each token after the first of each text, its log-probability and the most probable tokens."""

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
        """Returns the kind of prompts that are decoded in small batches."""

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


Likeliest = list[tuple[float, list[tuple[int, float]]]]
"""For each token after the first of a text: its log-probability, and the most probable tokens with theirs."""


def logprobs(
    writer: Writer, row: Sequence[int], completion: Completion, likeliest: Likeliest, count: int, *, echo: bool
) -> dict[str, list[Any]]:
    """Returns the `logprobs` of a completion: each token with its offset, log-probability and most probable rivals."""
    ids, vocabulary = [*row, *completion.ids], writer.vocabulary
    start, base = (0, 0) if echo else (len(row), len(vocabulary.decode(row)))
    if echo and row and row[0] == vocabulary.specials.begin:
        start = 1
    tokens = [piece.replace("▁", " ") for piece in vocabulary.pieces(ids[start:])]
    offsets = [max(0, len(vocabulary.decode(ids[:place])) - base) for place in range(start, len(ids))]
    values: list[float | None] = list(completion.log_probabilities)
    if echo and likeliest:
        values = [*([None] if start == 0 else []), *(value for value, _ in likeliest)]
    tops: list[dict[str, float] | None] = []
    for place, value in zip(range(start, len(ids)), values, strict=True):
        others = likeliest[place - 1][1] if likeliest and place else []
        named = {vocabulary.pieces([token])[0].replace("▁", " "): each for token, each in others}
        tops.append(None if place == 0 or value is None else {**named, tokens[place - start]: value})
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops if count else [], "text_offset": offsets}
