"""Where texts of several clients are translated together: in a search that sentences join, or in small batches.

A lane has one set of options. What it finds is told in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from regard.decoding.native.live import LiveSearch
from regard.decoding.native.search import NativeSearch
from regard.settings import DecodingSettings

BATCH = 16
"""Texts of a small batch: who comes next waits for no more than these."""


@dataclass(frozen=True)
class How:
    """The options of a request."""

    settings: DecodingSettings
    into: str  # the language
    alike: Hashable  # what can be done together has the same
    translate: Callable[[list[Any]], list[Any]] | None = None  # whole texts, where sentences cannot join


@dataclass(eq=False)
class Item:
    """One thing to do for a request: a sentence, or, where sentences cannot join, a whole text."""

    request: Any
    place: int  # among those of the request
    how: How
    source: Any  # tokens, or a text
    limit: int = 0  # most tokens of the output
    lane: Lane | None = None  # it is in; none: it waits, or is done
    number: int = -1  # in its lane


Found = Callable[[list[tuple[Item, Any]]], None]
"""Told what has become of some items: what was found, or an exception."""


class Lane(Protocol):
    """A way to get things done, shared by all who want them done with the same options."""

    room: int  # items that it takes at a time, those included that wait in it
    running: int  # items that are in it, which its owner counts,
    used: float  # and when the last one left

    def submit(self, items: Sequence[Item]) -> None:
        """Lets items join."""
        ...

    def cancel(self, item: Item) -> None:
        """An item leaves, if that is still possible; what is told of it all the same is to be ignored."""
        ...

    def close(self) -> None:
        """Ends; of what is not finished nothing is told."""
        ...


class LiveLane:
    """A search of the native engine that sentences join between two steps."""

    def __init__(self, engine: NativeSearch, settings: DecodingSettings, found: Found) -> None:
        self.live = LiveSearch(engine, settings, found)  # type: ignore[arg-type]  # its keys are our items
        self.room = self.live.at_once * 3 // 2  # so that somebody waits when one leaves, but nobody waits long
        self.running, self.used = 0, time.monotonic()

    def submit(self, items: Sequence[Item]) -> None:
        for settings, alike in groupby(items, lambda item: item.how.settings):
            some = list(alike)
            numbers = self.live.submit(some, [item.source for item in some], [item.limit for item in some], settings)
            for item, number in zip(some, numbers, strict=True):
                item.number = number

    def cancel(self, item: Item) -> None:
        self.live.cancel(item.number)

    def close(self) -> None:
        self.live.close()


class BatchLane:
    """Small batches of texts, one after the other: for engines that nothing can join, and for searches with a glossary.

    `alone` is held while a batch is translated.
    """

    def __init__(self, translate: Callable[[list[Any]], list[Any]], found: Found, alone: threading.Lock) -> None:
        self.translate, self.found, self.alone = translate, found, alone
        self.room, self.running, self.used = 2 * BATCH, 0, time.monotonic()
        self._waiting: deque[Item] = deque()
        self._change, self._open = threading.Condition(), True
        threading.Thread(target=self._work, daemon=True, name="regard-batches").start()

    def submit(self, items: Sequence[Item]) -> None:
        with self._change:
            self._waiting.extend(items)
            self._change.notify()

    def cancel(self, item: Item) -> None:
        with self._change:
            if item in self._waiting:
                self._waiting.remove(item)

    def close(self) -> None:
        with self._change:
            self._open = False
            self._waiting.clear()
            self._change.notify()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or not self._open)
                if not self._open:
                    return
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            with self.alone:
                outcomes = self._outcomes(batch)
            self.found(list(zip(batch, outcomes, strict=True)))

    def _outcomes(self, batch: list[Item]) -> list[Any]:
        try:
            return self.translate([item.source for item in batch])
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            if len(batch) == 1:
                return [error]
        return [outcome for item in batch for outcome in self._outcomes([item])]  # whose fault was it?
