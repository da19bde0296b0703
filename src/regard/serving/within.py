"""Time limits."""

from __future__ import annotations

import asyncio
import math


class Within:
    """Past so many seconds, what is awaited in it ends with TimeoutError; cheaper than a task for each wait."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.over = max(0.0, seconds), False
        self.timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        self.task = asyncio.current_task()
        if self.seconds < math.inf:
            self.timer = asyncio.get_running_loop().call_later(self.seconds, self.end)

    def end(self) -> None:
        self.over = True
        if self.task is not None:
            self.task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.over and kind is asyncio.CancelledError:
            getattr(self.task, "uncancel", int)()  # from Python 3.11 on, cancellations are counted
            raise asyncio.TimeoutError
