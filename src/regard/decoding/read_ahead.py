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
"""Seconds to wait for an abandoned thread to end; a thread that waits for input may end later."""

is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=lambda: False)
"""A function that reports whether the work of the current thread is no longer needed."""


def prefetch(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields the same items in the same order, but computes each in a thread while the previous one is being used.

    An exception in the thread is raised here, after the items before it. The thread ends when the consumer stops.
    """
    worker = _Worker(items)
    worker.start()
    try:
        while (item := worker.take()) is not None:
            yield item[0]
            item = None  # frees its memory while waiting for the next item
    finally:
        worker.unwanted = True
        worker.room.release()
        worker.join(GRACE)


def end_if_unwanted() -> None:
    """Ends this thread if its work is no longer needed; long computations call this regularly."""
    thread = current_thread()
    if isinstance(thread, _Worker) and thread.unwanted:
        sys.exit()
    if is_unwanted.get()():
        sys.exit()


class _Worker(Thread, Generic[T]):
    """A thread that computes one item at a time, and the next one as soon as that is taken."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        super().__init__(daemon=True)  # a thread waiting for input must not keep the process alive
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
            end_if_unwanted()  # the consumer may itself be a worker
            try:
                result = self.results.get(timeout=0.1)
            except Empty:
                continue
            if isinstance(result, BaseException):
                raise result
            self.room.release()
            return result
