"""A native search that sentences can join and leave while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from regard.decoding.native.compiled_library import SearchResult, TokenCallback
from regard.decoding.native.native_search import ROWS_AT_ONCE, GrowingOutputs, NativeSearch, read_hypotheses
from regard.decoding.search_interface import Hypothesis
from regard.errors import ModelError
from regard.settings import DecodingSettings

SearchOutcome = list[Hypothesis] | BaseException
ReportOutcomes = Callable[[list[tuple[Hashable, SearchOutcome]]], None]
"""A callback that gets the keys and outcomes of finished sentences, in the search's own thread."""
Follow = Callable[[Sequence[int]], bool]
"""A callback that gets all tokens of an output after each new one, in a thread of the search; True ends the output."""


class _Sentence(NamedTuple):
    key: Hashable | None  # None if the sentence was cancelled too late
    width: int  # width of the alignment
    growing: GrowingOutputs | None


class LiveSearch:
    """A search with fixed options, to which any thread can add sentences."""

    def __init__(
        self, search: NativeSearch, settings: DecodingSettings, report: ReportOutcomes, *, followed: bool = False
    ) -> None:
        """Starts an empty search; only a `followed` one, which must not use a beam, calls `follow` callbacks."""
        self.engine, self.report = search, report
        request, _, _arrays = search.request([], [], settings)
        if followed:
            request.on_token = self._callback = TokenCallback(self._grow)  # keeps it alive while the library runs
        self.at_once = search.threads * max(1, ROWS_AT_ONCE // (request.beam or request.rows))  # number of sentences
        self._sentences: dict[int, _Sentence] = {}
        self._lock, self._open = threading.Lock(), True
        self._running = search.packed.open(request)
        self._thread = threading.Thread(target=self._listen, daemon=True, name="regard-live")
        self._thread.start()

    def submit(
        self,
        keys: Sequence[Hashable],
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        follow: Sequence[Follow | None] = (),
    ) -> list[int]:
        """Adds sentences with these keys and returns their numbers; of the settings, only the seed may differ."""
        request, widths, _arrays = self.engine.request(sources, limits, settings)
        growing = [each and GrowingOutputs(each) for each in follow] or [None] * len(keys)
        with self._lock:
            if not self._open:
                raise ModelError("this search has ended")
            first = self._running.submit(request)
            numbers = range(first, first + len(keys))
            self._sentences.update(zip(numbers, map(_Sentence, keys, widths, growing), strict=True))
        return list(numbers)

    def cancel(self, number: int) -> None:
        """Removes a sentence in any state; its outcome is not reported."""
        with self._lock:
            if number in self._sentences and self._open:
                sentence = self._sentences.pop(number)
                if not self._running.cancel(number):  # already done; `_read` will get its result soon
                    self._sentences[number] = _Sentence(None, sentence.width, None)

    def close(self) -> None:
        """Ends the search and waits until it has ended; unfinished sentences are not reported."""
        with self._lock:
            self._sentences.clear()
            if self._open:
                self._open = False
                self._running.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _listen(self) -> None:
        try:
            while (outcomes := self._running.wait(self._read)) is not None:
                if outcomes:
                    self.report(outcomes)
        except ModelError as error:  # the search ran out of memory and has ended
            self.report([(key, error) for key in self._end()])
        finally:
            self._end()
            self._running.free()

    def _end(self) -> list[Hashable]:
        """Prevents further calls of the library; returns the keys of unfinished sentences."""
        with self._lock:
            self._open = False
            keys = [each.key for each in self._sentences.values() if each.key is not None]
            self._sentences.clear()
        return keys

    def _read(self, result: SearchResult) -> list[tuple[Hashable, SearchOutcome]]:
        with self._lock:
            if not self._open:
                return []
            sentences = [self._sentences.pop(number) for number in result.numbers[: result.sentences]]
        results = read_hypotheses(result, [each.width for each in sentences])
        return [
            (each.key, (each.growing and each.growing.error) or hypotheses)
            for each, hypotheses in zip(sentences, results, strict=True)
            if each.key is not None
        ]

    def _grow(self, number: int, row: int, token: int) -> bool:
        with self._lock:  # waits until `submit` has registered the sentence
            sentence = self._sentences.get(number)
        return sentence is not None and sentence.growing is not None and sentence.growing.add(row, token)
