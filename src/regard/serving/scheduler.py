"""One model for all clients: their items share its batches, and each request ends as soon as its own are done."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.errors import ModelError
from regard.serving.batchers import Batcher, Item, Kind
from regard.serving.fair_queue import FairQueue
from regard.serving.refusals import BusyError, LateError

MOST_WAITING = 10_000
"""Texts that may wait: minutes of work for a small machine."""
MOST_BATCHERS = 4
"""Batchers that run side by side, of those that items join and of the others."""
IDLE = 60.0
"""Seconds after which an unused batcher is closed, which frees its memory."""
RECENT = 200
"""Finished items from which the speed is estimated."""

T = TypeVar("T")


@dataclass
class Counts:
    """Counts of a scheduler since it started."""

    requests: int = 0
    texts: int = 0
    sentences: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    busy: int = 0  # requests that were refused because the queue was full,
    late: int = 0  # that missed their deadline,
    cancelled: int = 0  # whose client left,
    failed: int = 0  # or that failed


def until(deadline: float | None) -> asyncio.Timeout:
    """Raises TimeoutError at this time of `time.monotonic`."""
    return asyncio.timeout(None if deadline is None else deadline - time.monotonic())


class Scheduler:
    """Shares one model among the requests of all clients, in one event loop."""

    def __init__(self, *, most_waiting: int = MOST_WAITING, parallel: int = 1) -> None:
        """Runs at most `parallel` small batches at once."""
        self.most_waiting = most_waiting
        self.counts, self.quiet_since = Counts(), time.monotonic()
        self.slots = threading.Semaphore(parallel)
        self._queue: FairQueue[Item] = FairQueue()
        self._batchers: dict[Kind, Batcher] = {}
        self._requests: set[QueuedRequest] = set()
        self._threads = ThreadPoolExecutor(2, "regard-prepare")
        self._recent: deque[float] = deque(maxlen=RECENT)  # when items were finished
        self._closing = self._closed = False
        self._change = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Texts and items that have not been started."""
        return len(self._queue) + sum(request.unread for request in self._requests)

    @property
    def running(self) -> int:
        """Items in batches."""
        return sum(batcher.running for batcher in self._batchers.values())

    @property
    def open_requests(self) -> int:
        """Requests that were accepted and are not answered yet."""
        return len(self._requests)

    @contextlib.asynccontextmanager
    async def admit(self, texts: int, client: str = "") -> AsyncIterator[QueuedRequest]:
        """Accepts a request and yields its request; whatever is unfinished at the end is cancelled.

        Raises BusyError if the queue is full, and LateError for a TimeoutError.
        """
        self.check_room(texts, count=True)
        request = QueuedRequest(self, client, texts)
        self._requests.add(request)
        self.counts.requests += 1
        try:
            yield request
        except TimeoutError:
            self.counts.late += 1
            raise LateError("the answer was not ready in time: ask for less at once, or later") from None
        except (asyncio.CancelledError, GeneratorExit):
            self.counts.cancelled += 1
            raise
        except BaseException:
            self.counts.failed += 1
            raise
        finally:
            self._leave(request)
        self.counts.texts += texts

    def check_room(self, texts: int, *, count: bool = False) -> None:
        """Raises BusyError if these texts are too many; more than the queue holds are accepted when nobody waits."""
        if self._closing:
            error = BusyError("the server is stopping: ask again in a moment", 5.0)
        elif self.waiting and self.waiting + texts > self.most_waiting:
            error = BusyError(f"too many texts are waiting ({self.waiting:,}): ask again later", self._retry_after())
        else:
            return
        self.counts.busy += count
        raise error

    async def close(self, grace: float = 30.0) -> None:
        """Accepts nothing more, and waits up to `grace` seconds for what was accepted."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), grace)
        self._closed = True
        for request in list(self._requests):
            request.fail(BusyError("the server is stopping: ask again in a moment", 5.0))
        batchers = list(self._batchers.values())
        self._batchers.clear()
        for batcher in batchers:
            await asyncio.to_thread(batcher.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of some work on texts, such as tokenization."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def tokens_written(self, _result: Any) -> int:
        """Returns the number of tokens in a result, for the counts."""
        return 0

    async def _all_answered(self) -> None:
        while self._requests:
            self._change.clear()
            await self._change.wait()

    def _retry_after(self) -> float:
        """Returns the seconds until half of what waits should be done, at the recent speed."""
        now = time.monotonic()
        seconds = now - self._recent[0] if self._recent else 1.0
        return float(min(60, max(1, math.ceil(self.waiting / 2 * seconds / max(1, len(self._recent))))))

    def enqueue(self, request: QueuedRequest, items: Sequence[Item]) -> None:
        """Lets items of a request wait for their turn."""
        if request in self._requests:
            self._queue.add(request.client, request, items)
            self._start()

    def _leave(self, request: QueuedRequest) -> None:
        self._requests.discard(request)
        self._queue.drop(request.client, request)
        for item in list(request.running):
            if item.batcher is not None:
                item.batcher.cancel(item)
                self._free(item)
        self.quiet_since = time.monotonic()
        self._change.set()
        self._start()

    # Items

    def _start(self) -> None:
        """Starts items as long as there is room for any."""
        joining: defaultdict[Batcher, list[Item]] = defaultdict(list)
        while not self._closed and (item := self._queue.take(self._fits)) is not None:
            try:
                batcher = self._batcher(item.kind)
            except ModelError as error:  # too many threads, or no memory
                item.request.fail(error)
                continue
            item.batcher = batcher
            batcher.running += 1
            item.request.running.add(item)
            joining[batcher].append(item)
        for batcher, items in joining.items():
            try:
                batcher.submit(items)
            except ModelError as error:  # the search has failed
                self._settle([(item, error) for item in items])

    def _fits(self, item: Item) -> bool:
        """Returns whether the item's batcher has room, or can be opened."""
        if item.kind in self._batchers:
            batcher = self._batchers[item.kind]
            return batcher.running < batcher.room
        alike = self._alike(item.kind)
        return len(alike) < MOST_BATCHERS or any(not batcher.running for batcher in alike.values())

    def _batcher(self, kind: Kind) -> Batcher:
        """Returns the batcher of this kind; a new one may take the place of one that is unused."""
        if kind not in self._batchers:
            alike = self._alike(kind)
            if len(alike) >= MOST_BATCHERS:
                self._retire(*next((other, batcher) for other, batcher in alike.items() if not batcher.running))
            self._batchers[kind] = self._open(kind)
            self._close_when_idle(kind, self._batchers[kind])
        return self._batchers[kind]

    def _alike(self, kind: Kind) -> dict[Kind, Batcher]:
        return {other: each for other, each in self._batchers.items() if other.continuous == kind.continuous}

    def _open(self, kind: Kind) -> Batcher:
        loop = asyncio.get_running_loop()

        def report(results: list[tuple[Item, Any]]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(self._settle, results)

        return kind.open(report)

    def _settle(self, results: list[tuple[Item, Any]]) -> None:
        """Hands results to their requests, and starts other items in the places that are free now."""
        for item, result in results:
            batcher = item.batcher
            if batcher is None:
                continue  # its request has left
            self._free(item)
            if isinstance(result, BaseException):
                item.request.fail(result)
                if item.kind.continuous and isinstance(result, ModelError):  # the whole search has failed
                    self._retire(item.kind, batcher)
                continue
            self._recent.append(time.monotonic())
            self.counts.sentences += 1
            self.counts.tokens_read += item.tokens_read
            self.counts.tokens_written += self.tokens_written(result)
            item.request.succeed(item, result)
        self._start()

    def _free(self, item: Item) -> None:
        batcher, item.batcher = item.batcher, None
        item.request.running.discard(item)
        if batcher is not None:
            batcher.running -= 1
            batcher.used = time.monotonic()

    def _close_when_idle(self, kind: Kind, batcher: Batcher) -> None:
        if self._batchers.get(kind) is not batcher:
            return
        if not batcher.running and batcher.used + IDLE <= time.monotonic():
            self._retire(kind, batcher)
        else:
            asyncio.get_running_loop().call_later(IDLE, self._close_when_idle, kind, batcher)

    def _retire(self, kind: Kind, batcher: Batcher) -> None:
        if self._batchers.get(kind) is batcher:
            del self._batchers[kind]
            batcher.close()


class QueuedRequest:
    """The items of one request, and their results."""

    def __init__(self, scheduler: Scheduler, client: str, texts: int) -> None:
        self.scheduler, self.client, self.unread = scheduler, client, texts
        self.running: set[Item] = set()
        self._items = 0
        self._results: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._change = asyncio.Event()

    def add(self, items: Sequence[Item], texts: int) -> None:
        """Lets items wait for their turn, which are all that there is to do for this many texts."""
        for place, item in enumerate(items, self._items):
            item.request, item.place = self, place
        self._items += len(items)
        self.unread -= texts
        self.scheduler.enqueue(self, items)

    async def results(self) -> list[Any]:
        """Waits for the results of all items, and returns them in the order of the items."""
        while self._error is None and len(self._results) < self._items:
            self._change.clear()
            await self._change.wait()
        if self._error is not None:
            raise self._error
        return [self._results[place] for place in range(self._items)]

    def succeed(self, item: Item, result: Any) -> None:
        self._results[item.place] = result
        if len(self._results) == self._items:
            self._change.set()

    def fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._change.set()
