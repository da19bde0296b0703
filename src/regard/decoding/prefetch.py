"""Work in a thread, one item ahead of who uses it."""

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
"""Seconds that a thread which is not wanted any more has to end; one that waits for input may end later."""

is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=lambda: False)
"""Reports whether nobody waits any more for the work of this thread."""


def ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The same items in the same order, each made in a thread while the one before it is used.

    What goes wrong in the thread is raised here, after the items before it. The thread ends when nobody asks any more.
    """
    worker = _Worker(items)
    worker.start()
    try:
        while (made := worker.take()) is not None:
            yield made[0]
            made = None  # so that it is not held while the next one is waited for
    finally:
        worker.unwanted = True
        worker.room.release()
        worker.join(GRACE)


def end_if_unwanted() -> None:
    """Ends this thread if nobody waits any more for what it makes; what takes long asks now and then."""
    thread = current_thread()
    if isinstance(thread, _Worker) and thread.unwanted:
        sys.exit()
    if is_unwanted.get()():
        sys.exit()


class _Worker(Thread, Generic[T]):
    """Makes an item, and the next one when that is taken."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        super().__init__(daemon=True)  # a pipe that nobody writes to must not keep the process from ending
        self.items, self.context = items, copy_context()
        self.room, self.unwanted = Semaphore(), False
        self.made: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()

    def run(self) -> None:
        try:
            self.context.run(self._make)
            self.made.put(None)
        except BaseException as error:  # noqa: BLE001, raised again where the item is waited for
            self.made.put(error)

    def _make(self) -> None:
        with closing(self.items):
            while True:
                self.room.acquire()
                end_if_unwanted()
                try:
                    self.made.put((next(self.items),))
                except StopIteration:
                    return

    def take(self) -> tuple[T] | None:
        """The next item, when it is there; none after the last."""
        while True:
            end_if_unwanted()  # who waits may be such a thread too
            try:
                found = self.made.get(timeout=0.1)
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            self.room.release()
            return found
