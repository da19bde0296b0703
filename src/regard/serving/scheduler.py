"""Shares one model among all clients: their items run in common batches, in which the clients take turns."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regard.errors import ModelError
from regard.serving.batchers import Batcher, Item, Kind
from regard.serving.refusals import BusyError, LateError

MAX_WAITING = 10_000
"""Maximum number of waiting texts, which is minutes of work for a small machine."""
SLICE = 64
"""Number of texts of a request that are tokenized at a time, before other requests have their turn."""
MAX_BATCHERS = 4
"""Maximum number of batchers of each type, continuous or small, that are open at once."""
IDLE_SECONDS = 60.0
"""Seconds after which an unused batcher is closed, which frees its memory."""
RECENT = 200
"""Number of finished items from which the speed is estimated."""

T = TypeVar("T")


@dataclass
class Counts:
    """Counters of a scheduler since it started."""

    requests: int = 0
    texts: int = 0
    sentences: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    busy: int = 0  # requests rejected because the queue was full
    late: int = 0  # requests that missed their deadline
    cancelled: int = 0  # requests whose client disconnected
    failed: int = 0  # requests that raised any other error


def until(deadline: float | None) -> asyncio.Timeout:
    """Returns a context manager that raises TimeoutError when `time.monotonic` reaches `deadline`."""
    return asyncio.timeout(None if deadline is None else deadline - time.monotonic())


class Scheduler:
    """Shares one model among the requests of all clients; runs in one event loop."""

    def __init__(self, *, max_waiting: int = MAX_WAITING, parallel: int = 1) -> None:
        """Runs at most `parallel` small batches at once."""
        self.max_waiting = max_waiting
        self.counts, self.quiet_since = Counts(), time.monotonic()
        self.slots = threading.Semaphore(parallel)
        self.queue: FairQueue[Item] = FairQueue()
        self._batchers: dict[Kind, Batcher] = {}
        self._requests: set[QueuedRequest] = set()
        self._threads = ThreadPoolExecutor(2, "regard-prepare")
        self._recent: deque[float] = deque(maxlen=RECENT)  # times at which items were finished
        self._closing = self._closed = False
        self._all_answered = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of texts and items that have not been started."""
        return len(self.queue) + sum(request.unread for request in self._requests)

    @property
    def running(self) -> int:
        """The number of items in running batches."""
        return sum(batcher.running for batcher in self._batchers.values())

    @property
    def open_requests(self) -> int:
        """The number of accepted requests that have not been answered yet."""
        return len(self._requests)

    @contextlib.asynccontextmanager
    async def admit(self, texts: int, client: str, deadline: float | None = None) -> AsyncIterator[QueuedRequest]:
        """Accepts and yields a request; cancels its unfinished items at the end.

        Raises BusyError if the queue is full, and LateError at the deadline.
        """
        self.check_room(texts, count=True)
        request = QueuedRequest(self, client, texts)
        self._requests.add(request)
        self.counts.requests += 1
        try:
            async with until(deadline):
                yield request
        except TimeoutError:
            self.counts.late += 1
            raise LateError("the answer was not ready in time: send shorter requests, or try again later") from None
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
        """Raises BusyError if the queue has no room for this number of texts; an empty queue accepts any number."""
        if self._closing:
            error = BusyError("the server is stopping: try again in a moment", 5.0)
        elif self.waiting and self.waiting + texts > self.max_waiting:
            error = BusyError(f"too many texts are waiting ({self.waiting:,}): try again later", self._retry_after())
        else:
            return
        self.counts.busy += count
        raise error

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a function on texts, such as tokenization, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def tokens_written(self, _result: Any) -> int:
        """Returns the number of output tokens of a result, for the metrics."""
        return 0

    async def close(self, grace: float = 30.0) -> None:
        """Stops accepting requests, and waits up to `grace` seconds until the accepted ones are answered."""
        self._closing = True
        if self._requests:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), grace)
        self._closed = True
        for request in list(self._requests):
            request.fail(BusyError("the server is stopping: try again in a moment", 5.0))
        for kind, batcher in list(self._batchers.items()):
            del self._batchers[kind]
            await asyncio.to_thread(batcher.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _retry_after(self) -> float:
        """Returns the seconds in which half of the waiting texts will be done at the recent speed."""
        seconds = time.monotonic() - self._recent[0] if self._recent else 1.0
        return float(min(60, max(1, math.ceil(self.waiting / 2 * seconds / max(1, len(self._recent))))))

    def _leave(self, request: QueuedRequest) -> None:
        self._requests.discard(request)
        request.left = True
        self.queue.drop(request.client, request)
        for item in list(request.running):
            if item.batcher is not None:
                item.batcher.cancel(item)
                self._free_place(item)
        self.quiet_since = time.monotonic()
        if self._closing and not self._requests:
            self._all_answered.set()
        self.start_items()

    # Items

    def start_items(self) -> None:
        """Starts waiting items as long as a batcher has room."""
        joining: defaultdict[Batcher, list[Item]] = defaultdict(list)
        while not self._closed and (item := self.queue.take(self._has_room)) is not None:
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
                self._finish_items([(item, error) for item in items])

    def _has_room(self, item: Item) -> bool:
        if batcher := self._batchers.get(item.kind):
            return batcher.running < batcher.room
        alike = self._alike(item.kind)
        return len(alike) < MAX_BATCHERS or not all(batcher.running for batcher in alike.values())

    def _batcher(self, kind: Kind) -> Batcher:
        """Returns the batcher of this kind, or opens one; an unused batcher of another kind may be closed for it."""
        if kind in self._batchers:
            return self._batchers[kind]
        loop, alike = asyncio.get_running_loop(), self._alike(kind)
        if len(alike) >= MAX_BATCHERS:
            self._close_batcher(*next((other, each) for other, each in alike.items() if not each.running))

        def report(results: list[tuple[Item, Any]]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._finish_items, results)

        self._batchers[kind] = batcher = kind.open(report)
        self._close_when_idle(kind, batcher)
        return batcher

    def _alike(self, kind: Kind) -> dict[Kind, Batcher]:
        return {other: each for other, each in self._batchers.items() if other.continuous == kind.continuous}

    def _finish_items(self, results: list[tuple[Item, Any]]) -> None:
        """Passes results on to their requests, and starts waiting items in the places that have become free."""
        for item, result in results:
            batcher = item.batcher
            if batcher is None:
                continue  # the request has been cancelled
            self._free_place(item)
            if isinstance(result, BaseException):
                item.request.fail(result)
                if item.kind.continuous and isinstance(result, ModelError):  # the whole search has failed
                    self._close_batcher(item.kind, batcher)
                continue
            self._recent.append(time.monotonic())
            self.counts.sentences += 1
            self.counts.tokens_read += item.tokens_read
            self.counts.tokens_written += self.tokens_written(result)
            item.request.succeed(item, result)
        self.start_items()

    def _free_place(self, item: Item) -> None:
        batcher, item.batcher = item.batcher, None
        item.request.running.discard(item)
        if batcher is not None:
            batcher.running -= 1
            batcher.used = time.monotonic()

    def _close_when_idle(self, kind: Kind, batcher: Batcher) -> None:
        if not batcher.running and batcher.used + IDLE_SECONDS <= time.monotonic():
            self._close_batcher(kind, batcher)
        elif self._batchers.get(kind) is batcher:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_when_idle, kind, batcher)

    def _close_batcher(self, kind: Kind, batcher: Batcher) -> None:
        if self._batchers.get(kind) is batcher:
            del self._batchers[kind]
            batcher.close()


class QueuedRequest:
    """The items of one request and their results."""

    def __init__(self, scheduler: Scheduler, client: str, texts: int) -> None:
        self.scheduler, self.client, self.unread = scheduler, client, texts
        self.running: set[Item] = set()
        self.left = False  # whether the request has ended or was cancelled
        self._items = 0
        self._results: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._change = asyncio.Event()

    def add(self, items: Sequence[Item], texts: int) -> None:
        """Adds the items of the next texts to the queue; `texts` is the number of these texts."""
        for place, item in enumerate(items, self._items):
            item.request, item.place = self, place
        self._items += len(items)
        self.unread -= texts
        if not self.left:
            self.scheduler.queue.add(self.client, self, items)
            self.scheduler.start_items()

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


class FairQueue(Generic[T]):
    """A queue in which clients take turns, and so do the requests of each client, so that long files block nobody."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[Hashable, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, client: str, request: Hashable, items: Iterable[T]) -> None:
        """Appends items to the queue of a request."""
        queue = deque(items)
        if queue:
            self._count += len(queue)
            self._clients.setdefault(client, OrderedDict()).setdefault(request, deque()).extend(queue)

    def drop(self, client: str, request: Hashable) -> None:
        """Removes a request and its items."""
        requests: OrderedDict[Hashable, deque[T]] = self._clients.get(client, OrderedDict())
        self._count -= len(requests.pop(request, ()))
        if not requests:
            self._clients.pop(client, None)

    def take(self, fits: Callable[[T], bool]) -> T | None:
        """Removes and returns the next item for which `fits` is true, or None; skipped requests keep their turn."""
        for client, requests in self._clients.items():
            for request, queue in requests.items():
                if fits(queue[0]):
                    self._count -= 1
                    item = queue.popleft()
                    self._clients.move_to_end(client)
                    requests.move_to_end(request)
                    if not queue:
                        self.drop(client, request)
                    return item
        return None
