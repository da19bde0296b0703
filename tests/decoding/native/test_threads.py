"""Results do not depend on other sentences or threads; signals end a search, and Python runs meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import pytest
import torch
from hypothesis import given, strategies as st

from regard.settings import DecodingSettings
from tests.decoding.native.models import (
    FIRST,
    SETS,
    SPECIALS,
    Model,
    beams,
    drawn,
    greedy,
    models,
    native,
    reference,
    some_sources,
    toy,
    works,
    write,
)
from tests.examples import examples

GREEDY = DecodingSettings(beam=1)
FOREVER = 10**6
"""A limit that no test reaches."""


def endless() -> Model:
    """Returns a decoder that never ends an output."""
    model = toy(decoder_only=True)
    with torch.no_grad():
        model.logits.bias[SPECIALS.end] = -1e4
    return model


weights = st.sampled_from([{}, {"int8": True}, {"fixed": True}])
"""The forms of the weights: float32, int8, and the three bytes of large models."""


@given(data=st.data(), model=models(), form=weights)
@examples(15)
def test_a_sentence_is_the_same_in_any_company(data: st.DataObject, model: Model, form: dict[str, bool]) -> None:
    """The bits are equal in any batch, where one thread does the work."""
    work = data.draw(works(model, greedy | beams | drawn))
    for kernels in SETS:
        engine = native(model, kernels, **form)
        together = engine.search(*work)
        for i in range(0, len(work.sources), 3):
            assert engine.search([work.sources[i]], [work.limits[i]], work.settings) == [together[i]]
        backwards = engine.search(work.sources[::-1], work.limits[::-1], work.settings)
        assert backwards[::-1] == together


@given(data=st.data(), model=models(), threads=st.integers(2, 4), form=weights)
@examples(15)
def test_any_number_of_threads_gives_the_same(
    data: st.DataObject, model: Model, threads: int, form: dict[str, bool]
) -> None:
    """The bits are equal whether threads share a sentence, or each has its own."""
    work = data.draw(works(model, greedy | beams | drawn))
    for kernels in SETS:
        engines = [native(model, kernels, threads=count, **form) for count in (1, threads)]
        alone, shared = (engine.search(*work) for engine in engines)
        assert shared == alone
        assert engines[1].search(work.sources[:1], work.limits[:1], work.settings) == alone[:1]


@pytest.mark.parametrize("form", [{}, {"int8": True}, {"fixed": True}], ids=str)
@pytest.mark.parametrize("settings", [GREEDY, DecodingSettings(beam=5, alternatives=4)], ids=["greedy", "beam"])
def test_threads_share_a_large_vocabulary(settings: DecodingSettings, form: dict[str, bool]) -> None:
    """It has chunks of unequal sizes, and more of them than threads."""
    model = toy(vocabulary=3_000)
    sources = some_sources(model, 3)
    for kernels in SETS:
        first, *others = (
            native(model, kernels, threads=threads, **form).search(sources, [12] * 3, settings)
            for threads in (1, 2, 3, 9, 24)
        )
        assert others == [first] * 4


@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads_of_python_at_once(threads: int) -> None:
    """Each thread has its own work, with one model."""
    model = toy()
    engine = native(model, threads=threads)
    jobs = [(some_sources(model, 3 + i, seed=i), DecodingSettings(beam=1 + i % 3, seed=i)) for i in range(8)]

    def search(job: tuple[list[list[int]], DecodingSettings]) -> object:
        return engine.search(job[0], [10] * len(job[0]), job[1])

    expected = [search(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search, jobs * 3)) == expected * 3


def test_python_goes_on_meanwhile() -> None:
    """One of several attempts is enough, as this thread may wait on a busy machine."""
    assert any(rounds_meanwhile() > 10 for _ in range(5))


def rounds_meanwhile() -> int:
    engine = native(endless())
    began, counted = threading.Event(), 0

    def work() -> float:
        start = time.monotonic()
        began.set()
        engine.search([[FIRST]] * 100, [400] * 100, GREEDY)
        return time.monotonic() - start

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        began.wait()
        while not running.done():
            counted += 1
            time.sleep(0.001)
        assert running.result() > 0.05, "too little work to tell"
    return counted


class RingError(Exception):
    """Raised by the alarm, as KeyboardInterrupt is by Ctrl-C."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise RingError

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_signal_ends_a_search() -> None:
    engine = native(endless())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    start = time.monotonic()
    with pytest.raises(RingError):
        engine.search([[FIRST]], [FOREVER], GREEDY)
    assert time.monotonic() - start < 30
    assert engine.search([[FIRST]], [3], GREEDY)[0][0].tokens


def test_threads_that_work_together_stop_together(tmp_path: Path) -> None:
    """A signal may come at any time; a thread that stopped alone would leave the others waiting."""
    write(endless(), tmp_path / "packed")
    program = f"""
import random, signal
from pathlib import Path
from regard.decoding.native.compiled_library import PackedModel
from regard.decoding.native import native_search as search
from regard.decoding.native.native_search import NativeSearch
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials

search.WORTH_SHARING = 0  # a toy is shared too

def ring(signal, frame):
    raise TimeoutError

def enough(number, tokens):  # asked where the search has begun
    if len(tokens) == 1:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.01))
    return False

signal.signal(signal.SIGALRM, ring)
packed = PackedModel(Path({str(tmp_path / "packed")!r}))
engine = NativeSearch(packed, Specials(), longest=30, decoder_only=True, threads=2)
for _ in range(40):
    try:
        engine.search([[5]], [{FOREVER}], DecodingSettings(beam=1), enough)
    except TimeoutError:
        print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "stopped\n" * 40


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are told where to run on Linux alone")
def test_where_threads_may_run_stays_as_it_was(tmp_path: Path) -> None:
    """Threads that share a sentence run on different processors; the calling thread is bound to none."""
    write(endless(), tmp_path / "packed")
    program = f"""
import os
from pathlib import Path
from regard.decoding.native.compiled_library import PackedModel
from regard.decoding.native import native_search as search
from regard.decoding.native.native_search import NativeSearch
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials

search.WORTH_SHARING = 0  # a toy is shared too
packed = PackedModel(Path({str(tmp_path / "packed")!r}))
engine = NativeSearch(packed, Specials(), longest=30, decoder_only=True, threads=2)
allowed = os.sched_getaffinity(0)
for processors in (allowed, {{min(allowed)}}):
    os.sched_setaffinity(0, processors)
    found = engine.search([[5]], [20], DecodingSettings(beam=1))
    assert len(found[0][0].tokens) == 20
    assert os.sched_getaffinity(0) == processors
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_who_is_asked_ends_the_search_and_is_raised(threads: int) -> None:
    seen: list[int] = []

    def enough(number: int, tokens: Sequence[int]) -> bool:
        seen.append(number)
        if len(tokens) == 3:
            raise ZeroDivisionError("of who is asked")
        return False

    with pytest.raises(ZeroDivisionError, match="of who is asked"):
        native(endless(), threads=threads).search([[FIRST], [FIRST + 1]], [FOREVER] * 2, GREEDY, enough)
    assert 3 <= len(seen) <= 6


def test_tokens_come_as_they_are_chosen_and_nobody_works_for_who_has_left() -> None:
    model, before = endless(), threading.active_count()
    tokens = native(model).tokens([FIRST], DecodingSettings(max_tokens=FOREVER))
    first = [next(tokens) for _ in range(5)]
    assert tuple(first) == reference(model).search([[FIRST]], [5], GREEDY)[0][0].tokens
    assert threading.active_count() > before
    tokens.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
