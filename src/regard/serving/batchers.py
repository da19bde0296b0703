"""Batches the work of all clients: in a running search that new items can join, or in small batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from regard.decoding.native.continuous_search import Follow, LiveSearch
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.read_ahead import is_unwanted
from regard.settings import DecodingSettings

BATCH_SIZE = 16
"""Maximum number of items in a small batch; it is small because new items have to wait until it ends."""


@dataclass(eq=False)
class Item:
    """One piece of work for a model: a sentence, prompt or text of a request."""

    kind: Kind
    source: Any  # input of the model: token ids, an encoder row or a text
    tokens_read: int = 0  # number of input tokens, for the metrics
    limit: int = 0  # maximum number of output tokens
    settings: DecodingSettings | None = None
    follow: Follow | None = None  # called after each output token; returns True to end the output
    shape: Hashable = None  # only items of the same shape share a small batch
    request: Any = None  # the QueuedRequest to which the item belongs
    place: int = 0  # index among the items of the request
    batcher: Batcher | None = None  # set only while the item is running
    number: int = -1  # number of the item in the batcher


ReportResults = Callable[[list[tuple[Item, Any]]], None]
"""A function that is called from any thread with items and their results, or exceptions for items that failed."""


@dataclass(frozen=True)
class Kind:
    """A kind of items that can share batches, and a function that opens a batcher for them."""

    key: Hashable
    open: Callable[[ReportResults], Batcher] = field(compare=False)
    continuous: bool = False  # whether items can join a running search


class ContinuousBatcher:
    """Runs a search of the native engine; new items can join it between two decoding steps."""

    def __init__(
        self, engine: NativeSearch, settings: DecodingSettings, report: ReportResults, *, followed: bool = False
    ) -> None:
        self.live = LiveSearch(engine, settings, report, followed=followed)  # type: ignore[arg-type]  # the keys are items
        self.room = self.live.at_once * 3 // 2  # a few extra items wait inside, so that the search never runs out
        self.running, self.used = 0, time.monotonic()  # updated by the scheduler

    def submit(self, items: Sequence[Item]) -> None:
        for settings, group in groupby(items, lambda item: item.settings):
            assert settings is not None
            alike = list(group)
            sources, limits = [item.source for item in alike], [item.limit for item in alike]
            numbers = self.live.submit(alike, sources, limits, settings, [item.follow for item in alike])
            for item, number in zip(alike, numbers, strict=True):
                item.number = number

    def cancel(self, item: Item) -> None:
        self.live.cancel(item.number)

    def close(self) -> None:
        self.live.close()


class SmallBatcher:
    """Runs small batches, for work that new items cannot join while it is running.

    Each thread acquires `slots` while it runs a batch, which limits how many batches of a model run at once.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Any]],
        report: ReportResults,
        slots: threading.Semaphore,
        *,
        size: int = BATCH_SIZE,
        threads: int = 1,
    ) -> None:
        self.run, self.report, self.slots, self.size = run, report, slots, size
        self.room = (threads + 1) * size
        self.running, self.used = 0, time.monotonic()  # updated by the scheduler
        self._waiting: deque[Item] = deque()
        self._change, self._open = threading.Condition(), True
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True, name="regard-batches").start()

    def submit(self, items: Sequence[Item]) -> None:
        with self._change:
            self._waiting.extend(items)
            self._change.notify_all()

    def cancel(self, item: Item) -> None:
        """Removes an item that has not started; a running batch ends early when all of its items are cancelled."""
        with self._change:
            if item in self._waiting:
                self._waiting.remove(item)

    def close(self) -> None:
        """Drops the items that have not started."""
        with self._change:
            self._open = False
            self._waiting.clear()
            self._change.notify_all()

    def _work(self) -> None:
        while self._open:
            with self._change:
                self._change.wait_for(lambda: self._waiting or not self._open)
            with self.slots:
                batch = self._take()
                results = self._results(batch) if batch else ()
            if batch:
                self.report(list(zip(batch, results, strict=True)))

    def _take(self) -> list[Item]:
        """Removes and returns the waiting items that have the shape of the first, at most `size` of them."""
        with self._change:
            alike = [item for item in self._waiting if item.shape == self._waiting[0].shape][: self.size]
            for item in alike:
                self._waiting.remove(item)
            return alike

    def _results(self, batch: list[Item]) -> Sequence[Any]:
        is_unwanted.set(lambda: all(item.batcher is None for item in batch))
        try:
            return self.run(batch)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            if len(batch) == 1:
                return [error]
        return [result for item in batch for result in self._results([item])]  # so that only the faulty item fails


Batcher = ContinuousBatcher | SmallBatcher


def continuous_engine(search: object) -> NativeSearch | None:
    """Returns the native engine, whose running searches new sentences can join, or None for PyTorch."""
    return search if isinstance(search, NativeSearch) else None


def continuous_kind(engine: NativeSearch, settings: DecodingSettings, *, followed: bool = False) -> Kind:
    """Returns the kind of items that can share a running search with these settings."""
    shared = shared_settings(settings)
    return Kind(shared, lambda report: ContinuousBatcher(engine, shared, report, followed=followed), continuous=True)


def shared_settings(settings: DecodingSettings) -> DecodingSettings:
    """Resets the settings that may differ between the items of a search: the seed and the length limits."""
    common = DecodingSettings()
    differing = ("seed", "max_tokens", "max_ratio", "batch_tokens")
    return replace(settings, **{name: getattr(common, name) for name in differing})
