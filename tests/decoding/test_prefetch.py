"""Work ahead in a thread: the same items and errors, never more than one item early, and no thread left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator, Iterator
from contextvars import ContextVar

import pytest
from hypothesis import given, strategies as st

from regard.decoding import read_ahead as module
from regard.decoding.read_ahead import end_if_unwanted, prefetch


def count(closed: list[str] | None = None) -> Generator[int, None, None]:
    """0, 1, 2 ... for ever; says when it is closed, and by which thread."""
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        if closed is not None:
            closed.append(threading.current_thread().name)


def doubled(items: Generator[int, None, None]) -> Generator[int, None, None]:
    try:
        for item in items:
            yield 2 * item
    finally:
        items.close()


@pytest.fixture(autouse=True)
def _no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "GRACE", 60.0)  # a machine may be busy with other things
    before = set(threading.enumerate())
    yield
    gc.collect()
    assert set(threading.enumerate()) <= before


@given(st.lists(st.integers(), max_size=6))
def test_the_same_items_come_in_the_same_order(items: list[int]) -> None:
    assert list(prefetch(item for item in items)) == items
    assert list(prefetch(doubled(prefetch(item for item in items)))) == [2 * item for item in items]


def test_the_next_item_is_made_while_one_is_used() -> None:
    begun = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        begun.set()
        yield 2

    found = prefetch(items())
    assert not begun.is_set()
    assert next(found) == 1
    assert begun.wait(10)
    assert list(found) == [2]


def test_one_item_is_ahead_and_no_more() -> None:
    early: list[int] = []
    used: list[int] = []

    def items() -> Generator[int, None, None]:
        for number in range(1, 50):
            early.append(number - len(used))
            yield number

    for item in prefetch(items()):
        used.append(item)  # noqa: PERF402
    assert used == [*range(1, 50)]
    assert max(early) <= 2  # one, and that which was taken a moment ago and is not in `used` yet


def test_nothing_is_made_before_it_is_asked_for() -> None:
    closed: list[str] = []
    threads = threading.active_count()
    found = prefetch(count(closed))
    assert threading.active_count() == threads
    found.close()
    assert (closed, threading.active_count()) == ([], threads)


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise KeyError("three")

    for nested in (prefetch(items()), prefetch(doubled(prefetch(items())))):
        assert [next(nested), next(nested)] in ([1, 2], [2, 4])
        with pytest.raises(KeyError, match="three"):
            next(nested)


@pytest.mark.parametrize("how", ["close", "forget", "error"])
def test_who_stops_early_ends_the_thread(how: str) -> None:
    closed: list[str] = []
    found = prefetch(doubled(prefetch(count(closed))))
    assert [next(found) for _ in range(3)] == [0, 2, 4]
    assert len(threading.enumerate()) >= 3
    if how == "close":
        found.close()
    elif how == "forget":
        del found
        gc.collect()
    else:
        with pytest.raises(ZeroDivisionError):
            found.throw(ZeroDivisionError)
    assert len(closed) == 1
    assert closed[0] != threading.current_thread().name


def test_a_thread_that_waits_does_not_hold_up_who_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    waiting, more = threading.Event(), threading.Event()

    def pipe() -> Generator[int, None, None]:
        yield 1
        waiting.set()
        more.wait(60)
        yield 2

    found = prefetch(doubled(prefetch(pipe())))
    assert next(found) == 2
    workers = [thread for thread in threading.enumerate() if isinstance(thread, module._Worker)]
    assert len(workers) == 2
    assert all(worker.daemon for worker in workers)  # nor the end of the process
    assert waiting.wait(10)
    found.close()
    assert [worker.unwanted for worker in workers] == [True, True]
    assert any(worker.is_alive() for worker in workers)
    more.set()
    for worker in workers:
        worker.join(10)


def test_what_takes_long_is_ended_on_the_way() -> None:
    steps, begun = 0, threading.Event()

    def slow() -> Generator[int, None, None]:
        nonlocal steps
        yield 0
        while True:
            steps += 1
            begun.set()
            end_if_unwanted()

    found = prefetch(slow())
    assert next(found) == 0
    assert begun.wait(10)
    found.close()
    assert steps > 0
    end_if_unwanted()  # in a thread that nobody waits for, it does nothing


def test_the_context_is_that_of_who_asks_first() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="elsewhere")

    def items() -> Generator[str, None, None]:
        yield variable.get()

    found = prefetch(items())
    variable.set("here")
    assert list(found) == ["here"]
