"""A bar on standard error: how many sentences are done, how fast it goes, and how long it will take."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, ProgressColumn, Task, TextColumn
from rich.text import Text

from regard.cli.training_display import duration

T = TypeVar("T")


def metered(found: Generator[T, None, None], sizes: deque[int], total: int | None) -> Generator[T, None, None]:
    """The same items, with a bar beside them: each is as long as the first of `sizes`, all are `total` if known."""
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        _Pace(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
        redirect_stdout=False,  # it would print above the bar, on standard error
    )
    with closing(found), bar:
        task = bar.add_task("translating", total=total, done=0, seconds=0.0)
        for done, item in enumerate(found, 1):
            yield item
            bar.update(task, advance=sizes.popleft(), done=done, seconds=bar.tasks[0].elapsed)


class _Pace(ProgressColumn):
    """What can be said at the moment."""

    def render(self, task: Task) -> Text:
        done, seconds, now = task.fields["done"], task.fields["seconds"], task.elapsed or 0.0
        share = task.completed / task.total if task.total else 0.0
        return Text(describe(done, seconds, share, now - seconds))


def describe(done: int, seconds: float, share: float, since: float = 0.0) -> str:
    """1,200 sentences, 85.2/s, 1 min 3 s left; so many of them, a `share` of the input, took `seconds`, `since` ago."""
    parts = [f"{done:,} sentences"]
    if done and seconds:
        parts.append(f"{done / seconds:,.1f}/s")
        if share:
            parts.append(f"{duration(max(0.0, seconds * (1 / share - 1) - since))} left")
    return ", ".join(parts)
