"""A search of the native engine that sentences join and leave while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence

from regard.decoding.hypothesis import Hypothesis
from regard.decoding.native.library import Result
from regard.decoding.native.search import ROWS_AT_ONCE, NativeSearch, hypotheses
from regard.errors import ModelError
from regard.settings import DecodingSettings

Outcome = list[Hypothesis] | ModelError
Found = Callable[[list[tuple[Hashable, Outcome]]], None]
"""Told, in a thread of the search's own, what has become of some sentences."""


class LiveSearch:
    """Searches with one set of options; safe to call from several threads."""

    def __init__(self, search: NativeSearch, settings: DecodingSettings, found: Found) -> None:
        self.engine, self.found = search, found
        request, _, _arrays = search.request([], [], settings)
        self.at_once = search.threads * max(1, ROWS_AT_ONCE // (request.beam or request.rows))  # sentences
        self._keys: dict[
            int, tuple[Hashable | None, int]
        ] = {}  # of those that wait or are written, and how wide they look
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
    ) -> list[int]:
        """Lets sentences join, which are known by these keys: their numbers. The settings may have another seed."""
        request, widths, _arrays = self.engine.request(sources, limits, settings)
        with self._lock:
            if not self._open:
                raise ModelError("this search is over")
            first = self._running.submit(request)
            numbers = list(range(first, first + len(keys)))
            self._keys.update(zip(numbers, zip(keys, widths, strict=True), strict=True))
        return numbers

    def cancel(self, number: int) -> None:
        """A sentence leaves, wherever it is; nothing is told of it any more."""
        with self._lock:
            if number in self._keys and self._open:
                _, width = self._keys.pop(number)
                if not self._running.cancel(number):  # is found already, and will be read in a moment
                    self._keys[number] = None, width

    def close(self) -> None:
        """Ends at once and waits until it has; of what was not finished nothing is told."""
        with self._lock:
            self._keys.clear()
            if self._open:
                self._open = False
                self._running.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _listen(self) -> None:
        try:
            while (outcomes := self._running.wait(self._read)) is not None:
                if outcomes:
                    self.found(outcomes)
        except ModelError as error:  # there is no memory: the search is over
            self.found([(key, error) for key in self._end()])
        finally:
            self._end()
            self._running.free()

    def _end(self) -> list[Hashable]:
        """Nothing may be asked of the library any more; the keys of what it leaves undone."""
        with self._lock:
            self._open = False
            left = [key for key, _ in self._keys.values() if key is not None]
            self._keys.clear()
        return left

    def _read(self, result: Result) -> list[tuple[Hashable, Outcome]]:
        with self._lock:
            if not self._open:
                return []
            known = [self._keys.pop(number) for number in result.numbers[: result.sentences]]
        found = hypotheses(result, [width for _, width in known])
        return [(key, each) for (key, _), each in zip(known, found, strict=True) if key is not None]
