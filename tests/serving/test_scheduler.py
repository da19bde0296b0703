"""Many clients share one translator: each gets the answer that it would get alone, in time, or an error."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from regard.decoding.decoder_step import TranslationStep
from regard.decoding.model_loading import load_as
from regard.decoding.native.compiled_library import reason_unavailable
from regard.decoding.native.continuous_search import LiveSearch
from regard.decoding.search_interface import Constraints
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Translator
from regard.errors import InputError, ModelError, RegardError
from regard.serving import scheduler as module
from regard.serving.refusals import BusyError, LateError
from regard.serving.translation_service import TranslatorQueue
from tests.serving.toys import TEXTS, write_model

T = TypeVar("T")
ENGINES = ["native", "torch"] if reason_unavailable() is None else ["torch"]
both = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "en-de", "en-de")


@pytest.fixture(scope="module")
def translators(folder: Path) -> dict[str, Translator]:
    torch.set_num_threads(1)  # which is faster for toys
    return {engine: load_as(Translator, folder, engine=engine, threads=2) for engine in ENGINES}


@pytest.fixture
def translator(translators: dict[str, Translator]) -> Translator:
    return translators[ENGINES[0]]


def run(translator: Translator, work: Callable[[TranslatorQueue], Awaitable[T]], **options: Any) -> T:
    """Returns the result of some work with a scheduler, which is closed afterwards."""

    async def all_of_it() -> T:
        scheduler = TranslatorQueue(translator, **options)
        try:
            return await asyncio.wait_for(work(scheduler), 300)
        finally:
            await scheduler.close()

    return asyncio.run(all_of_it())


def texts(count: int, seed: int = 0) -> list[str]:
    dice = random.Random(seed)
    return ["\n".join(dice.choices([*TEXTS, "", " ".join(TEXTS)], k=dice.choice([1, 1, 1, 3]))) for _ in range(count)]


class Slow:
    """A translator that needs some time for each text, and notes the order of the texts."""

    searcher = None

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.seen: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def decoding(self, options: dict[str, Any]) -> None:
        if "wrong" in options:
            raise InputError("wrong: is not known")

    def direction(self, **_: Any) -> Any:
        return type("Way", (), {"target": "de"})

    def translate(self, texts: Sequence[str], **_: Any) -> list[Translation]:
        self.go.wait(30)
        self.seen += texts
        time.sleep(self.seconds * len(texts))
        if any("bad" in text for text in texts):
            raise InputError("a bad text")
        return [Translation(text.upper(), 0.0, 0.0, ("a",), (), finished=True) for text in texts]


def slow(seconds: float = 0.0) -> Any:
    return Slow(seconds)


# Answers


@both
@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"alternatives": 2}, {"temperature": 0.9, "seed": 5}])
def test_translations_equal_those_of_the_translator(
    translators: dict[str, Translator], engine: str, options: dict[str, Any]
) -> None:
    work = [texts(count, seed=count) for count in ((1, 3, 20, 0, 1, 70, 2) if engine == "native" else (1, 0, 3, 18))]
    translator = translators[engine]

    async def all_at_once(scheduler: TranslatorQueue) -> list[list[Translation]]:
        calls = (scheduler.translate(some, client=str(i), **options) for i, some in enumerate(work))
        return list(await asyncio.gather(*calls))

    found = run(translator, all_at_once)
    for some, made in zip(work, found, strict=True):
        alone = translator.translate(some, **options)
        assert [each.text for each in made] == [each.text for each in alone]
        if engine == "native":
            assert made == alone


@both
def test_clients_with_all_kinds_of_options_at_once(translators: dict[str, Translator], engine: str) -> None:
    """There are more sets of options than batchers."""
    translator = translators[engine]
    options: list[dict[str, Any]] = [
        *({"beam": beam} for beam in range(1, 6)),
        *({"temperature": 1.0, "seed": seed} for seed in range(3)),
        {"alternatives": 2, "alignment": True},
        {"constrain": lambda _text: Constraints(required=(((7,),),))},
        {"max_ratio": 0.1},
        {"consensus": 8},
        {"source": "en", "target": "de"},
    ]

    async def all_at_once(scheduler: TranslatorQueue) -> list[list[Translation]]:
        return list(await asyncio.gather(*(scheduler.translate(TEXTS, client="x", **each) for each in options)))

    for each, made in zip(options, run(translator, all_at_once), strict=True):
        assert [one.text for one in made] == [one.text for one in translator.translate(TEXTS, **each)], each


def test_wrong_options_are_refused_without_harm_to_others(translator: Translator) -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        good = asyncio.create_task(scheduler.translate(TEXTS))
        for wrong in ({"beams": 3}, {"beam": 0}, {"target": "fr"}):
            with pytest.raises(RegardError, match=r"beam|translates only from"):
                await scheduler.translate(["A dog."], **wrong)
        with pytest.raises(InputError, match="text 67: a text is too long"):
            await scheduler.translate([*["A dog."] * 66, "x" * 500])
        assert await good == translator.translate(TEXTS)
        assert (scheduler.waiting, scheduler.running, scheduler.open_requests) == (0, 0, 0)

    run(translator, work)


def test_one_bad_text_of_a_batch_does_no_harm_to_others() -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        results = await asyncio.gather(
            *(scheduler.translate([text]) for text in ("one", "bad", "two")), return_exceptions=True
        )
        assert [str(each) if isinstance(each, InputError) else each[0].text for each in results] == [  # type: ignore[index]
            "ONE",
            "a bad text",
            "TWO",
        ]
        assert scheduler.counts.failed == 1

    run(slow(), work)


# Turns


def test_a_long_file_does_not_keep_a_short_request_waiting() -> None:
    translator = slow()

    async def work(scheduler: TranslatorQueue) -> None:
        translator.go.clear()
        long = asyncio.create_task(scheduler.translate([f"line {i}" for i in range(1000)], client="file"))
        await asyncio.sleep(0)
        short = asyncio.create_task(scheduler.translate(["short"], client="person"))
        same = asyncio.create_task(scheduler.translate(["same"], client="file"))
        await asyncio.sleep(0)
        translator.go.set()
        await asyncio.gather(short, same)
        assert not long.done()
        await long

    run(translator, work)
    assert max(translator.seen.index("short"), translator.seen.index("same")) < 50


@pytest.mark.skipif("native" not in ENGINES, reason="sentences join in the native engine")
def test_a_sentence_joins_those_that_are_being_written(translator: Translator) -> None:
    """A person who asks after a long file is answered long before the file is done."""

    async def work(scheduler: TranslatorQueue) -> None:
        long = asyncio.create_task(scheduler.translate(texts(600), client="file", beam=8))
        while not scheduler.running:
            await asyncio.sleep(0.001)
        for _ in range(5):
            assert await scheduler.translate(["A dog runs."], client="person", beam=8)
            done = scheduler.counts.sentences
        assert not long.done()
        assert done < 600
        await long

    run(translator, work)


# Full queues, deadlines and cancelled requests


def test_too_much_is_refused_with_a_time_to_come_back() -> None:
    translator = slow(0.001)

    async def work(scheduler: TranslatorQueue) -> None:
        translator.go.clear()
        taken = [asyncio.create_task(scheduler.translate(["text"] * 40, client=str(i))) for i in range(3)]
        await asyncio.sleep(0.02)
        assert scheduler.waiting + scheduler.running == 120
        with pytest.raises(BusyError, match="too many texts") as caught:
            await scheduler.translate(["text"] * 40)
        assert 1 <= caught.value.retry_after <= 60
        translator.go.set()
        await asyncio.gather(*taken)
        assert len(await scheduler.translate(["text"] * 200)) == 200, "alone, even more than the queue holds"
        assert scheduler.counts.busy == 1

    run(translator, work, max_waiting=100)


def test_the_time_to_come_back_is_when_half_of_the_queue_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 that wait, 50 are done in 5 seconds if the last 20 took 2."""

    async def work(scheduler: TranslatorQueue) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
        for waiting, recent, seconds in ((100, 20, 5), (10, 20, 1), (0, 0, 1), (10, 0, 5), (10_000, 2, 60)):
            monkeypatch.setattr(TranslatorQueue, "waiting", waiting)
            scheduler._recent.clear()
            scheduler._recent.extend([998.0] * recent)
            assert scheduler._retry_after() == seconds
        monkeypatch.undo()

    run(slow(), work)


@both
def test_a_request_past_its_deadline_fails_and_leaves(translators: dict[str, Translator], engine: str) -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        with pytest.raises(LateError, match="in time"):
            await scheduler.translate(texts(500), deadline=time.monotonic() + 0.02, beam=6)
        with pytest.raises(LateError):
            await scheduler.translate(["A dog runs."], deadline=time.monotonic() - 5)
        assert (scheduler.waiting, scheduler.open_requests, scheduler.counts.late) == (0, 0, 2)
        assert await scheduler.translate(["A dog runs."], deadline=time.monotonic() + 30)
        assert scheduler.running == 0

    run(translators[engine], work)


@both
def test_cancelled_requests_make_room(translators: dict[str, Translator], engine: str) -> None:
    dice = random.Random(1)

    async def work(scheduler: TranslatorQueue) -> None:
        for _ in range(12 if engine == "native" else 4):
            calls = [asyncio.create_task(scheduler.translate(texts(dice.randint(1, 80)))) for _ in range(3)]
            await asyncio.sleep(dice.choice([0, 0.001, 0.01]))
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert (scheduler.waiting, scheduler.running, scheduler.open_requests) == (0, 0, 0)
        made = await scheduler.translate(TEXTS)
        assert [each.text for each in made] == [each.text for each in translators[engine].translate(TEXTS)]

    run(translators[engine], work)


@both
def test_a_constrained_search_ends_when_its_client_leaves(translators: dict[str, Translator], engine: str) -> None:
    """The search ends in the middle, although nothing can join or leave its batch."""
    steps, advance = [0], TranslationStep.advance

    def slow_advance(*arguments: Any) -> Any:
        steps[0] += 1
        time.sleep(0.05)
        return advance(*arguments)

    async def work(scheduler: TranslatorQueue) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TranslationStep, "advance", slow_advance)
            wanted: dict[str, Any] = {"constrain": lambda _text: Constraints(required=(((7,),),)), "max_ratio": 2.0}
            call = asyncio.create_task(scheduler.translate(TEXTS * 4, **wanted))
            while not steps[0]:
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await asyncio.sleep(0.5)
            after = steps[0]
            await asyncio.sleep(0.5)
            assert steps[0] == after

    run(translators[engine], work)


# The end


def test_closing_finishes_accepted_requests_and_accepts_no_more() -> None:
    translator = slow(0.001)

    async def work() -> None:
        scheduler = TranslatorQueue(translator)
        taken = [asyncio.create_task(scheduler.translate([f"text {i}"] * 10)) for i in range(5)]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(scheduler.close())
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="stopping"):
            await scheduler.translate(["more"])
        assert [len(made) for made in await asyncio.gather(*taken)] == [10] * 5
        await closing

    asyncio.run(work())


def test_closing_waits_no_longer_than_its_grace() -> None:
    translator = slow()

    async def work() -> None:
        scheduler = TranslatorQueue(translator)
        translator.go.clear()
        taken = [asyncio.create_task(scheduler.translate(["text"] * 100, client=str(i))) for i in range(3)]
        await asyncio.sleep(0.01)
        await scheduler.close(grace=0.05)
        results = await asyncio.gather(*taken, return_exceptions=True)
        assert [type(each) for each in results] == [BusyError] * 3
        translator.go.set()

    asyncio.run(work())


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()
    end = time.monotonic() + 60
    while left := {each for each in threading.enumerate() if each not in before}:
        assert time.monotonic() < end, left
        time.sleep(0.01)


@pytest.mark.usefixtures("no_threads_left")
@both
def test_no_thread_is_left_behind(translators: dict[str, Translator], engine: str) -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        for beam in range(1, 6):
            await scheduler.translate(TEXTS[:1], beam=beam)
        call = asyncio.create_task(scheduler.translate(texts(200)))
        await asyncio.sleep(0.01)
        call.cancel()

    run(translators[engine], work)


@pytest.mark.usefixtures("no_threads_left")
def test_a_batcher_that_nobody_uses_is_closed(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)

    async def work(scheduler: TranslatorQueue) -> None:
        await scheduler.translate(TEXTS)
        assert len(scheduler._batchers) == 1
        end = time.monotonic() + 60
        while scheduler._batchers and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert len(scheduler._batchers) == 0
        assert await scheduler.translate(TEXTS)

    run(translator, work)


@pytest.mark.skipif("native" not in ENGINES, reason="there is no live search")
def test_a_search_that_fails_is_replaced(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LiveSearch, "__init__", failing("no memory"))
            with pytest.raises(ModelError, match="no memory"):
                await scheduler.translate(TEXTS)
            patch.undo()
            patch.setattr(LiveSearch, "submit", failing("over"))
            with pytest.raises(ModelError, match="over"):
                await scheduler.translate(TEXTS)
        assert await scheduler.translate(TEXTS) == translator.translate(TEXTS)
        assert (scheduler.waiting, scheduler.running, scheduler.open_requests) == (0, 0, 0)

    run(translator, work)


def failing(message: str) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise ModelError(message)

    return fail


def test_it_counts(translator: Translator) -> None:
    async def work(scheduler: TranslatorQueue) -> None:
        made = await scheduler.translate([*TEXTS, "A dog.\nA cat.", ""])
        counts = scheduler.counts
        assert (counts.requests, counts.texts) == (1, 6)
        assert counts.tokens_written == sum(len(each.tokens) for each in made)
        if ENGINES[0] == "native":
            assert counts.sentences == 6

    run(translator, work)
