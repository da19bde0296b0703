"""Time limits."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from regard.serving.within import Within


def test_what_takes_too_long_ends_and_the_task_goes_on() -> None:
    async def script() -> None:
        for seconds in (0.02, 0.0, -1.0):
            with pytest.raises(asyncio.TimeoutError):
                async with Within(seconds):
                    await asyncio.sleep(30)
        async with Within(30.0):
            await asyncio.sleep(0)  # nothing is left of the limits before
        await asyncio.sleep(0.03)

    started = time.monotonic()
    asyncio.run(script())
    assert time.monotonic() - started < 25


def test_what_is_cancelled_by_others_is_cancelled() -> None:
    async def work() -> None:
        async with Within(math.inf):
            await asyncio.sleep(30)

    async def script() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(script())


def test_other_errors_stay_what_they_are() -> None:
    async def script() -> None:
        async with Within(30.0):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(script())
