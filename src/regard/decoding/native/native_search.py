"""The native search engine."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any

from regard.decoding.native.compiled_library import PackedModel, SearchRequest, SearchResult, TokenCallback
from regard.decoding.read_ahead import end_if_unwanted
from regard.decoding.search_interface import Constraints, Hypothesis, SearchEngine, ShouldEnd, random_source
from regard.errors import InputError, ModelError
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials

MOST = 2**31 - 1
"""Largest integer that the library accepts."""
ROWS_AT_ONCE = 64
"""Number of hypotheses that a worker computes together: enough for fast products, but few enough for the CPU cache."""
SHORT_SEARCH = 512
"""Up to this many output tokens, a search is not interruptible, because the thread would cost 10 % of the time."""
POLL = 0.2
"""Seconds between checks whether a search is still wanted."""
WORTH_SHARING = 4 * 2**20
"""Minimum size of a model in bytes to use several threads per sentence; smaller products end before threads wake."""
SENTENCES_PER_THREAD = 4
"""With at least this many sentences per thread, each thread computes its own sentences."""


class NativeSearch:
    """Searches with a packed model; several threads may use it at once."""

    def __init__(
        self,
        packed: PackedModel,
        specials: Specials,
        *,
        longest: int,
        decoder_only: bool = False,
        threads: int | None = None,
        fallback: Callable[[], SearchEngine] | None = None,
        about: str = "",
    ) -> None:
        """Initializes the engine: `longest` is the model's maximum length, `fallback` loads the model in PyTorch."""
        self.packed, self.specials, self.longest, self.decoder_only = packed, specials, longest, decoder_only
        self.threads, self.fallback, self.about = threads or count_processors(), fallback, about

    def __repr__(self) -> str:
        return f"native engine, {self.about}{self.threads} thread{'s' * (self.threads > 1)}"

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: ShouldEnd | None = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each source, best first; those of source i have at most `limits[i]` tokens.

        Uses PyTorch for sources with constraints, and inside of `regard.observe`.
        """
        if is_observed():
            return self.reference.search(sources, limits, settings, should_end, constraints)
        if any(constraints):
            found: dict[int, list[Hypothesis]] = {}
            for engine, bound in ((self.reference, True), (self, False)):
                numbers = [i for i, each in enumerate(constraints) if bool(each) == bound]
                texts, most = [sources[i] for i in numbers], [limits[i] for i in numbers]
                mine = [constraints[i] for i in numbers] if bound else []
                found.update(zip(numbers, engine.search(texts, most, settings, should_end, mine), strict=True))
            return [found[i] for i in range(len(sources))]
        if not sources:
            return []
        stop = ctypes.c_int32(0)
        request, widths, _arrays = self.request(sources, limits, settings)
        request.workers, request.lanes = divide_threads(len(sources), self.threads, self.packed.size)
        request.stop = ctypes.addressof(stop)
        outputs = [GrowingOutputs(partial(should_end, i)) for i in range(len(sources))] if should_end else []

        def add(sentence: int, row: int, token: int) -> bool:
            ends = outputs[sentence].add(row, token)
            if outputs[sentence].error is not None:
                stop.value = 1
            return ends

        if outputs:
            request.on_token = TokenCallback(add)

        def work() -> list[list[Hypothesis]]:
            return self.packed.search(request, partial(read_hypotheses, widths=widths))

        results = work() if sum(limits) <= SHORT_SEARCH else interruptible(work, stop)
        for error in filter(None, (each.error for each in outputs)):
            raise error
        return results

    def request(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
    ) -> tuple[SearchRequest, list[int], list[array[Any]]]:
        """Returns a request, the widths of the alignments, and the arrays that must live as long as the request."""
        if limits and (min(limits) < 1 or (not self.decoder_only and max(limits) > self.longest)):
            raise ModelError(f"each output limit must be from 1 to {self.longest} tokens, the model's maximum length")
        rows = [ids[-self.longest + 1 :] if self.decoder_only else [*ids, self.specials.end] for ids in sources]
        arrays: list[array[Any]] = [int32(i for row in rows for i in row), offsets(map(len, rows)), int32(limits)]
        sampled = settings.temperature > 0
        arrays += random_numbers(sources, limits, settings) if sampled else [array("d"), offsets([])]
        arrays.append(int32(self.specials.never_generated))
        request = SearchRequest(
            len(rows),
            *(numbers.buffer_info()[0] for numbers in arrays),
            never_generated_count=len(arrays[-1]),
            begin=self.specials.begin,
            end=self.specials.end,
            beam=0 if sampled or settings.beam == 1 else min(settings.beam, MOST),
            rows=settings.alternatives + 1 if sampled else 1,
            best=min(settings.alternatives + 1, MOST),
            top_k=min(settings.top_k, MOST),
            power_penalty=settings.penalty == "power",
            alignment=settings.alignment and not self.decoder_only,
            workers=self.threads,
            lanes=1,
            length_penalty=settings.length_penalty,
            patience=settings.patience,
            temperature=settings.temperature,
            top_p=settings.top_p,
            min_p=settings.min_p,
            repetition_penalty=settings.repetition_penalty,
            rows_at_once=ROWS_AT_ONCE,
        )
        return request, [len(row) if request.alignment else 0 for row in rows], arrays

    @property
    def model(self) -> Any:
        """The PyTorch model, for `regard.observe`."""
        return self.reference.model  # type: ignore[attr-defined]

    @cached_property
    def reference(self) -> SearchEngine:
        """The PyTorch engine for the same model, loaded on first use."""
        if self.fallback is None:
            raise InputError("this search engine was created without a PyTorch model to fall back on")
        return self.fallback()

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Returns the log-probability of each token of a text except the first; uses PyTorch."""
        return self.reference.log_probabilities(tokens)

    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """Returns these log-probabilities, each with the most likely tokens at that position and theirs."""
        return self.reference.likeliest(tokens, count)

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Yields the tokens of one output, greedy or sampled, without the end token."""
        if is_observed():
            yield from self.reference.tokens(source, settings)
            return
        alone = replace(settings, beam=1, alternatives=0)
        limit = settings.max_tokens if self.decoder_only else self.longest
        items: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        is_closed = threading.Event()

        def put(_number: int, tokens: Sequence[int]) -> bool:
            items.put(tokens[-1])
            return is_closed.is_set()

        def work() -> None:
            try:
                self.search([source], [limit], alone, put)
                items.put(None)
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                items.put(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while (item := items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            is_closed.set()
            thread.join()


class GrowingOutputs:
    """The outputs of a sentence, to which the library adds one token at a time.

    An exception in the callback, which ctypes would discard, is stored and ends the outputs.
    """

    def __init__(self, should_end: Callable[[Sequence[int]], bool]) -> None:
        self.should_end = should_end
        self.error: BaseException | None = None
        self.tokens: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, row: int, token: int) -> bool:
        """Adds a token to an output; returns True if the output should end."""
        self.tokens[row].append(token)
        try:
            return self.error is not None or self.should_end(self.tokens[row])
        except BaseException as error:  # noqa: BLE001 - raised again where the search was started
            self.error = error
            return True


def interruptible(work: Callable[[], Any], stop: ctypes.c_int32) -> Any:
    """Runs a search in another thread; ends it immediately on Ctrl-C or if its consumer no longer waits."""
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        try:  # includes `submit`, because the work may begin before it returns
            running = pool.submit(work)
            while not wait([running], POLL).done:
                end_if_unwanted()
            return running.result()
        except BaseException:
            stop.value = 1
            raise


def divide_threads(sentences: int, threads: int, size: int) -> tuple[int, int]:
    """Returns the number of workers, and of threads per worker, for a model of `size` bytes."""
    if sentences >= SENTENCES_PER_THREAD * threads:
        return threads, 1
    workers = min(sentences, threads)
    return workers, threads // workers if size >= WORTH_SHARING else 1


def is_observed() -> bool:
    """Reports whether `regard.observe` is active, without importing it and PyTorch."""
    module = sys.modules.get("regard.model.observe")
    return module is not None and module.is_observed()


def count_processors() -> int:
    """Returns the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def int32(numbers: Iterable[int]) -> array[int]:
    """Returns an array of 32-bit integers for the library; numbers out of range are clipped but stay invalid ids.

    NumPy is not used because importing it would take longer than everything else before the first translation.
    """
    return array("i", (min(max(number, -1), MOST) for number in numbers))


def offsets(lengths: Iterable[int]) -> array[int]:
    """[N] lengths -> [N + 1] cumulative offsets, starting with 0."""
    return array("q", accumulate(lengths, initial=0))


def random_numbers(
    sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
) -> list[array[Any]]:
    """Returns the random numbers of all outputs, which PyTorch uses too, and the offsets of each text."""
    rows = settings.alternatives + 1
    numbers = array("d")
    for ids, limit in zip(sources, limits, strict=True):
        for k in range(rows):
            source = random_source(ids, k, settings)
            numbers.extend(source.random() for _ in range(limit))
    return [numbers, offsets(rows * limit for limit in limits)]


def read_hypotheses(result: SearchResult, widths: Sequence[int]) -> list[list[Hypothesis]]:
    """Converts the library's arrays to hypotheses; `widths` are the alignment widths of the sentences."""
    counts = result.counts[: len(widths)]
    outputs = sum(counts)
    token_counts, gain_counts = result.token_counts[:outputs], result.gain_counts[:outputs]
    scores, finished = result.scores[:outputs], result.finished[:outputs]
    tokens, gains = iter(result.tokens[: sum(token_counts)]), iter(result.gains[: sum(gain_counts)])
    wide = [width for width, count in zip(widths, counts, strict=True) for _ in range(count)]
    looks = iter(result.looks[: sum(n * width for n, width in zip(gain_counts, wide, strict=True))])
    made = [
        Hypothesis(
            tuple(islice(tokens, token_counts[i])),
            tuple(islice(gains, gain_counts[i])),
            scores[i],
            bool(finished[i]),
            tuple(tuple(islice(looks, wide[i])) for _ in range(gain_counts[i])) if wide[i] else (),
        )
        for i in range(outputs)
    ]
    each = iter(made)
    return [list(islice(each, count)) for count in counts]
