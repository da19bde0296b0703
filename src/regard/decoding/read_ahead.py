"""Runs a generator in a thread, one item ahead of its consumer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread, current_thread
from typing import Generic, TypeVar

T = TypeVar("T")

GRACE = 1.0
"""Seconds that an abandoned thread has to end; a thread that waits for input may end later."""

is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=lambda: False)
"""Reports whether nobody waits any more for the work of this thread."""


def ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields the same items in the same order, each computed in a thread while the previous one is used.

    An exception in the thread is raised here after the items before it. The thread ends when the consumer stops.
    """
    worker = _Worker(items)
    worker.start()
    try:
        while (item := worker.take()) is not None:
            yield item[0]
            item = None  # frees it while the next one is awaited
    finally:
        worker.unwanted = True
        worker.room.release()
        worker.join(GRACE)


def end_if_unwanted() -> None:
    """Ends this thread if its consumer has stopped; long computations call this now and then."""
    thread = current_thread()
    if isinstance(thread, _Worker) and thread.unwanted:
        sys.exit()
    if is_unwanted.get()():
        sys.exit()


class _Worker(Thread, Generic[T]):
    """Computes an item, and the next one when that is taken."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        super().__init__(daemon=True)  # a thread that waits for input must not keep the process alive
        self.items, self.context = items, copy_context()
        self.room, self.unwanted = Semaphore(), False
        self.results: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()

    def run(self) -> None:
        try:
            self.context.run(self._compute)
            self.results.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by `take`
            self.results.put(error)

    def _compute(self) -> None:
        with closing(self.items):
            while self.room.acquire():
                end_if_unwanted()
                try:
                    self.results.put((next(self.items),))
                except StopIteration:
                    return

    def take(self) -> tuple[T] | None:
        """Waits for the next item; returns None after the last."""
        while True:
            end_if_unwanted()  # the consumer may be such a thread too
            try:
                result = self.results.get(timeout=0.1)
            except Empty:
                continue
            if isinstance(result, BaseException):
                raise result
            self.room.release()
            return result
