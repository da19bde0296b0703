"""The search of the native engine, from Python."""

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

from regard.decoding.hypotheses import Constraints, Enough, Hypothesis, WritingSearch, ask, die_for
from regard.decoding.native.compiled_library import Packed, Request, Result, Told
from regard.decoding.prefetch import end_if_unwanted
from regard.errors import InputError, ModelError
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials

MOST = 2**31 - 1
"""The largest number that the library takes."""
ROWS_AT_ONCE = 64
"""Hypotheses of a worker that are read together: enough for the products, few enough for the caches and for memory."""
AT_ONCE = 512
"""Tokens that are written in no time: nobody can want to interrupt that, and a thread for it would cost a tenth."""
POLL = 0.2
"""Seconds between two questions whether a search is still wanted."""
WORTH_SHARING = 4 * 2**20
"""Bytes from which on several threads share the products of one sentence: in smaller models they wait too often."""
A_TEAM_EACH = 4
"""From so many sentences a thread on, every thread works on sentences of its own."""


class NativeSearch:
    """Searches with a packed model; safe to call from several threads."""

    def __init__(
        self,
        packed: Packed,
        specials: Specials,
        *,
        longest: int,
        decoder_only: bool = False,
        threads: int | None = None,
        fallback: Callable[[], WritingSearch] | None = None,
        about: str = "",
    ) -> None:
        self.packed, self.specials, self.decoder_only = packed, specials, decoder_only
        self.longest = longest  # positions of the model
        self.threads, self.fallback, self.about = threads or available_threads(), fallback, about

    def __repr__(self) -> str:
        return f"native engine, {self.about}{self.threads} thread{'s' * (self.threads > 1)}"

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None = None,
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first; those of source i end by `limits[i]` tokens.

        Sources that have `constraints` are left to PyTorch, and so is all that `regard.observe` looks into.
        """
        if observed():
            return self.reference.search(sources, limits, settings, enough, constraints)
        if constraints is not None and any(constraints):
            return self._search_constrained(sources, limits, settings, enough, constraints)
        if not sources:
            return []
        stop = ctypes.c_int32(0)
        request, widths, _arrays = self.request(sources, limits, settings)
        request.workers, request.lanes = share(len(sources), self.threads, self.packed.size)
        request.stop = ctypes.addressof(stop)
        growing = _Growing(enough, stop) if enough is not None else None
        if growing is not None:
            request.told = Told(growing)

        def work() -> list[list[Hypothesis]]:
            found: list[list[Hypothesis]] = self.packed.search(request, lambda result: hypotheses(result, widths))
            return found

        found = work() if sum(limits) <= AT_ONCE else interruptible(work, stop)
        if growing is not None and growing.error is not None:
            raise growing.error
        return found

    def request(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
    ) -> tuple[Request, list[int], list[array[Any]]]:
        """What the library is asked for, how wide each alignment will be, and the arrays that must live as long."""
        if limits and (min(limits) < 1 or (not self.decoder_only and max(limits) > self.longest)):
            raise ModelError(f"a limit is less than one token, or more than the model's {self.longest} positions")
        rows = [ids[-self.longest + 1 :] if self.decoder_only else [*ids, self.specials.end] for ids in sources]
        arrays: list[array[Any]] = [int32(i for row in rows for i in row), offsets(map(len, rows)), int32(limits)]
        arrays += luck(sources, limits, settings) if settings.temperature else [array("d"), offsets([])]
        arrays.append(int32(self.specials.never_generated))
        request = Request(len(rows), *(numbers.buffer_info()[0] for numbers in arrays))
        request.unspeakable_count = len(arrays[-1])
        request.begin, request.end = self.specials.begin, self.specials.end
        drawn = settings.temperature > 0
        request.beam = 0 if drawn or settings.beam == 1 else min(settings.beam, MOST)
        request.rows = settings.alternatives + 1 if drawn else 1
        request.best = min(settings.alternatives + 1, MOST)
        request.top_k, request.top_p, request.min_p = min(settings.top_k, MOST), settings.top_p, settings.min_p
        request.temperature, request.repetition_penalty = settings.temperature, settings.repetition_penalty
        request.power_penalty, request.length_penalty = settings.penalty == "power", settings.length_penalty
        request.patience, request.alignment = settings.patience, settings.alignment and not self.decoder_only
        request.workers, request.lanes, request.rows_at_once = self.threads, 1, ROWS_AT_ONCE
        return request, [len(row) if request.alignment else 0 for row in rows], arrays

    def _search_constrained(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None,
        constraints: Sequence[Constraints | None],
    ) -> list[list[Hypothesis]]:
        """PyTorch searches for what has constraints, the library for the others."""
        found: dict[int, list[Hypothesis]] = {}
        bound = [i for i, each in enumerate(constraints) if each]
        free = [i for i, each in enumerate(constraints) if not each]
        for numbers, engine, wanted in ((bound, self.reference, [constraints[i] for i in bound]), (free, self, None)):
            ends = partial(ask, enough, numbers) if enough else None
            results = engine.search([sources[i] for i in numbers], [limits[i] for i in numbers], settings, ends, wanted)
            found.update(zip(numbers, results, strict=True))
        return [found[i] for i in range(len(sources))]

    @property
    def model(self) -> Any:
        """The model in PyTorch, which `regard.observe` looks into."""
        return self.reference.model  # type: ignore[attr-defined]

    @cached_property
    def reference(self) -> WritingSearch:
        """The same model in PyTorch, loaded when it is first asked for."""
        if self.fallback is None:
            raise InputError("this search has no model in PyTorch beside it")
        return self.fallback()

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Of each token of a text but the first: by PyTorch, which reads a text at once."""
        return self.reference.log_probabilities(tokens)

    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """The same, each with the likeliest tokens that could have stood there, and how likely they were."""
        return self.reference.likeliest(tokens, count)

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """The tokens of one output, greedy or drawn, as they come; the end is not among them."""
        if observed():
            yield from self.reference.tokens(source, settings)
            return
        alone = replace(settings, beam=1, alternatives=0)
        limit = settings.max_tokens if self.decoder_only else self.longest
        found: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        gone = threading.Event()

        def told(_number: int, tokens: Sequence[int]) -> bool:
            found.put(tokens[-1])
            return gone.is_set()

        def work() -> None:
            try:
                self.search([source], [limit], alone, told)
                found.put(None)
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
                found.put(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while (item := found.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            gone.set()
            thread.join()


class _Growing:
    """Gathers the tokens that the library tells one by one, and asks whether an output has enough.

    An error in the answer, which ctypes would not let through, is kept, and ends the search.
    """

    def __init__(self, enough: Enough, stop: ctypes.c_int32) -> None:
        self.enough, self.stop = enough, stop
        self.error: BaseException | None = None
        self.tokens: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    def __call__(self, sentence: int, row: int, token: int) -> bool:
        tokens = self.tokens[sentence, row]
        tokens.append(token)
        try:
            return self.enough(sentence, tokens)
        except BaseException as error:  # noqa: BLE001 - raised where the search was asked for
            self.error, self.stop.value = error, 1
            return True


def interruptible(work: Callable[[], Any], stop: ctypes.c_int32) -> Any:
    """Does some work of the library's in another thread: Ctrl-C, or that nobody wants it any more, ends it at once."""
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        try:  # from the start: the work may be on its way before `submit` returns
            running = pool.submit(work)
            while not wait([running], POLL).done:
                end_if_unwanted()
            return running.result()
        except BaseException:
            stop.value = 1
            raise


def share(sentences: int, threads: int, size: int) -> tuple[int, int]:
    """Workers, each with sentences of its own, and the threads of each, for a model of so many bytes."""
    if sentences >= A_TEAM_EACH * threads:
        return threads, 1
    workers = min(sentences, threads)
    return workers, threads // workers if size >= WORTH_SHARING else 1


def observed() -> bool:
    """Whether `regard.observe` looks into what is run now; nobody does before its module is imported, with PyTorch."""
    module = sys.modules.get("regard.model.observe")
    return module is not None and module.watching()


def available_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def int32(numbers: Iterable[int]) -> array[int]:
    """As the library takes them; what is too large for it stays too large for any model.

    Not an array of NumPy, whose import takes longer than all else before the first translation.
    """
    return array("i", (min(max(number, -1), MOST) for number in numbers))


def offsets(lengths: Iterable[int]) -> array[int]:
    """[n] lengths -> [n + 1] places where each begins, and the end."""
    return array("q", accumulate(lengths, initial=0))


def luck(sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings) -> list[array[Any]]:
    """The random numbers of each output, the same as the reference's."""
    rows = settings.alternatives + 1
    numbers = array("d")
    for ids, limit in zip(sources, limits, strict=True):
        for k in range(rows):
            die = die_for(ids, k, settings)
            numbers.extend(die.random() for _ in range(limit))
    return [numbers, offsets(rows * limit for limit in limits)]


def hypotheses(found: Result, widths: Sequence[int]) -> list[list[Hypothesis]]:
    """The arrays of the library as objects; `widths` are those of a row of each sentence's alignment."""
    counts = found.counts[: len(widths)]
    outputs = sum(counts)
    token_counts, gain_counts = found.token_counts[:outputs], found.gain_counts[:outputs]
    scores, finished = found.scores[:outputs], found.finished[:outputs]
    tokens, gains = iter(found.tokens[: sum(token_counts)]), iter(found.gains[: sum(gain_counts)])
    wide = [width for width, count in zip(widths, counts, strict=True) for _ in range(count)]
    looks = iter(found.looks[: sum(n * width for n, width in zip(gain_counts, wide, strict=True))])
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
