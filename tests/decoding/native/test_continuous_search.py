"""Sentences join and leave a search while it runs, and get the same results as in a search of their own."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.decoding.native.compiled_library import RunningSearch, SearchResult
from regard.decoding.native.continuous_search import LiveSearch, SearchOutcome
from regard.decoding.native.native_search import NativeSearch
from regard.errors import ModelError
from regard.settings import DecodingSettings
from tests.decoding.native.models import FIRST, Model, beams, drawn, greedy, models, native, some_sources, toy, works
from tests.decoding.native.test_threads import FOREVER, GREEDY, endless
from tests.examples import examples

BEAM = DecodingSettings(beam=4, alternatives=1)
PATIENCE = 60.0
"""Seconds after which a test fails."""


class Room:
    """A live search and its outcomes."""

    def __init__(self, engine: NativeSearch, options: DecodingSettings) -> None:
        self.arrived: queue.Queue[tuple[Hashable, SearchOutcome]] = queue.Queue()
        self.options = options
        self.live = LiveSearch(engine, options, self.tell)

    def tell(self, outcomes: list[tuple[Hashable, SearchOutcome]]) -> None:
        for outcome in outcomes:
            self.arrived.put(outcome)

    def submit(self, key: Hashable, source: Sequence[int], limit: int, **options: Any) -> int:
        return self.live.submit([key], [source], [limit], replace(self.options, **options))[0]

    def take(self, count: int) -> dict[Hashable, SearchOutcome]:
        return dict(self.arrived.get(timeout=PATIENCE) for _ in range(count))

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self.live.close()


@given(data=st.data(), model=models(), threads=st.integers(1, 3), seed=st.integers(0, 99))
@examples(25)
def test_any_interleaving_gives_what_the_fixed_search_gives(
    data: st.DataObject, model: Model, threads: int, seed: int
) -> None:
    """Results have the same bits when groups of any size join and leave while others run."""
    work, dice = data.draw(works(model, greedy | beams | drawn)), random.Random(seed)
    engine = native(model, threads=threads)
    expected = native(model).search(*work)
    with Room(engine, work.settings) as room:
        left = list(range(len(work.sources)))
        dice.shuffle(left)
        while left:
            group, left = left[: (size := dice.randint(1, 4))], left[size:]
            sources, limits = [work.sources[i] for i in group], [work.limits[i] for i in group]
            numbers = room.live.submit(group, sources, limits, work.settings)
            extra = room.live.submit(["unwanted"], sources[:1], limits[:1], work.settings)
            time.sleep(dice.choice([0, 0, 0.001]))
            room.live.cancel(extra[0])
            assert len(set(numbers) | set(extra)) == len(group) + 1
        found: dict[Hashable, SearchOutcome] = {}
        while len(found) < len(work.sources):
            key, outcome = room.arrived.get(timeout=PATIENCE)
            if key != "unwanted":
                found[key] = outcome
        assert [found[i] for i in range(len(work.sources))] == expected


def test_many_threads_submit_to_one_search() -> None:
    model = toy()
    sources = some_sources(model, 120)
    expected = native(model).search(sources, [20] * 120, BEAM)
    with Room(native(model, threads=2), BEAM) as room:

        def client(first: int) -> None:
            for i in range(first, 120, 6):
                room.submit(i, sources[i], 20)

        clients = [threading.Thread(target=client, args=[first]) for first in range(6)]
        for thread in clients:
            thread.start()
        found = room.take(120)
        for thread in clients:
            thread.join()
    assert [found[i] for i in range(120)] == expected


def test_a_short_one_is_done_before_a_long_one_that_came_first() -> None:
    with Room(native(endless()), GREEDY) as room:
        number = room.submit("long", [FIRST], FOREVER)
        time.sleep(0.05)
        room.submit("short", [FIRST], 3)
        assert set(room.take(1)) == {"short"}
        room.live.cancel(number)


def test_a_draw_is_that_of_its_own_seed() -> None:
    model, options = toy(), DecodingSettings(temperature=1.0)
    source = some_sources(model, 1, seed=3)[0]
    with Room(native(model), options) as room:
        for seed in range(8):
            room.submit(seed, source, 20, seed=seed)
        found = room.take(8)
    for seed in range(8):
        assert found[seed] == native(model).search([source], [20], replace(options, seed=seed))[0]


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[RunningSearch]:
    """Returns a list that receives the searches that are freed."""
    gone: list[RunningSearch] = []
    free = RunningSearch.free

    def let_go(running: RunningSearch) -> None:
        gone.append(running)
        free(running)

    monkeypatch.setattr(RunningSearch, "free", let_go)
    return gone


def test_who_is_cancelled_makes_room(freed: list[RunningSearch]) -> None:
    """Running and waiting sentences can be cancelled, and closing ends endless ones."""
    engine = native(endless())
    with Room(engine, GREEDY) as room:
        numbers = [room.submit(("long", i), [FIRST], FOREVER) for i in range(room.live.at_once + 3)]
        room.submit("after all", [FIRST], 3)
        time.sleep(0.05)
        assert room.arrived.empty()
        for number in numbers[:10] + numbers[-3:]:
            room.live.cancel(number)
        assert set(room.take(1)) == {"after all"}
        room.live.cancel(numbers[0])  # again, and one that never was
        room.live.cancel(10**9)
    assert len(freed) == 1
    room.live.close()
    with pytest.raises(ModelError, match="has ended"):
        room.submit("late", [FIRST], 3)


def test_nobody_is_busy_when_there_is_nothing_to_do() -> None:
    model = toy()
    with Room(native(model, threads=2), BEAM) as room:
        room.submit(0, [FIRST], 5)
        room.take(1)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.1
        room.submit(1, [FIRST], 5)
        room.take(1)


@pytest.mark.parametrize(
    ("source", "limit", "told"),
    [([FIRST] * 40, 5, "longer than the model's positions"), ([10**6], 5, "vocabulary"), ([FIRST], 0, "limit")],
)
def test_what_makes_no_sense_is_refused_and_the_others_go_on(source: list[int], limit: int, told: str) -> None:
    model = toy()
    with Room(native(model), BEAM) as room:
        room.submit("good", [FIRST], 9)
        with pytest.raises(ModelError, match=told):
            room.submit("bad", source, limit)
        room.submit("better", [FIRST], 9)
        found = room.take(2)
    assert found["good"] == found["better"] == native(model).search([[FIRST]], [9], BEAM)[0]


def test_a_search_that_fails_tells_it_to_everybody(monkeypatch: pytest.MonkeyPatch, freed: list[RunningSearch]) -> None:
    failing = threading.Event()
    wait = RunningSearch.wait

    def fail(running: RunningSearch, read: Callable[[SearchResult], Any]) -> Any:
        wait(running, read)
        failing.wait(PATIENCE)
        raise ModelError("there is not enough memory")

    monkeypatch.setattr(RunningSearch, "wait", fail)
    with Room(native(endless()), GREEDY) as room:
        room.submit("first", [FIRST], 3)
        for i in range(3):
            room.submit(i, [FIRST], FOREVER)
        failing.set()
        assert {key: str(error) for key, error in room.take(3).items()} == dict.fromkeys(
            range(3), "there is not enough memory"
        )
        room.live._thread.join(PATIENCE)
        assert len(freed) == 1
        with pytest.raises(ModelError, match="has ended"):
            room.submit(9, [FIRST], 3)
