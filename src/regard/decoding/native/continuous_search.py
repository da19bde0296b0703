"""A search of the native engine that sentences join and leave while it runs."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from regard.decoding.hypotheses import Hypothesis
from regard.decoding.native.compiled_library import Result, Told
from regard.decoding.native.native_search import ROWS_AT_ONCE, NativeSearch, hypotheses
from regard.errors import ModelError
from regard.settings import DecodingSettings

Outcome = list[Hypothesis] | BaseException
Found = Callable[[list[tuple[Hashable, Outcome]]], None]
"""Told, in a thread of the search's own, what has become of some sentences."""
Follow = Callable[[Sequence[int]], bool]
"""Called after each token of an output with its tokens so far, in a thread of the search: True ends the output."""


class LiveSearch:
    """Searches with one set of options; safe to call from several threads."""

    def __init__(
        self, search: NativeSearch, settings: DecodingSettings, found: Found, *, followed: bool = False
    ) -> None:
        """Only the outputs of a `followed` search, which has no beam, can be watched while they grow."""
        self.engine, self.found = search, found
        request, _, _arrays = search.request([], [], settings)
        self._growing: dict[int, _Growing] = {}
        if followed:
            request.told = self._told = Told(self._grow)  # kept: the library calls it as long as it runs
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
        follow: Sequence[Follow | None] = (),
    ) -> list[int]:
        """Lets sentences join, which are known by these keys: their numbers. The settings may have another seed."""
        request, widths, _arrays = self.engine.request(sources, limits, settings)
        with self._lock:
            if not self._open:
                raise ModelError("this search is over")
            first = self._running.submit(request)
            numbers = list(range(first, first + len(keys)))
            self._keys.update(zip(numbers, zip(keys, widths, strict=True), strict=True))
            self._growing.update((n, _Growing(each)) for n, each in zip(numbers, follow, strict=False) if each)
        return numbers

    def cancel(self, number: int) -> None:
        """A sentence leaves, wherever it is; nothing is told of it any more."""
        with self._lock:
            if number in self._keys and self._open:
                _, width = self._keys.pop(number)
                self._growing.pop(number, None)
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
            self._growing.clear()
        return left

    def _read(self, result: Result) -> list[tuple[Hashable, Outcome]]:
        with self._lock:
            if not self._open:
                return []
            numbers = result.numbers[: result.sentences]
            known = [self._keys.pop(number) for number in numbers]
            growing = [self._growing.pop(number, None) for number in numbers]
        found: list[Outcome] = list(hypotheses(result, [width for _, width in known]))
        outcomes = [each.error if each and each.error else made for each, made in zip(growing, found, strict=True)]
        return [(key, each) for (key, _), each in zip(known, outcomes, strict=True) if key is not None]

    def _grow(self, number: int, row: int, token: int) -> bool:
        with self._lock:  # who submits has it until the number is known
            growing = self._growing.get(number)
        return growing is not None and growing.add(row, token)


class _Growing:
    """The outputs of a sentence so far; an error of who follows them ends them, and becomes the outcome."""

    def __init__(self, follow: Follow) -> None:
        self.follow = follow
        self.error: BaseException | None = None
        self.tokens: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, row: int, token: int) -> bool:
        self.tokens[row].append(token)
        try:
            return self.error is not None or self.follow(self.tokens[row])
        except BaseException as error:  # noqa: BLE001 - ctypes would not let it through
            self.error = error
            return True
