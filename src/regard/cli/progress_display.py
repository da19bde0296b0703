"""Displays progress: training in a terminal or a log file, and other work as a bar on standard error."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing, nullcontext
from typing import TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress as Bar, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress, Stage

T = TypeVar("T")

LOG_SECONDS = 30.0
"""Minimum number of seconds between two progress lines in a log file."""
SPEED_SECONDS = 2.0
"""Number of seconds after which the speed of a stage is shown."""
SCORES = {
    "bleu": "BLEU {:.1f}",
    "chrf": "chrF {:.1f}",
    "accuracy": "accuracy {:.1f} %",
    "f1": "F1 {:.1f} %",
    "nats_per_character": "{:.4f} nats per character",
}


def show_training(events: Iterable[Event], console: Console | None = None) -> Finished | None:
    """Shows a training run until it ends, live in a terminal, otherwise as log lines.

    Returns the last event, or None if the run was only prepared.
    """
    console = console or Console(highlight=False)
    view = _LiveView(console) if console.is_terminal else _LogView(console)
    finished = None
    with view.live:
        try:
            for event in events:
                view.show(event)
                finished = event if isinstance(event, Finished) else finished
        finally:
            view.close()
    if finished is None:
        return None
    for name, scores in finished.scores.items():
        console.print(f"[bold]{name}[/bold]  " + "\n     ".join(scores), soft_wrap=True)
    if finished.complete:
        duration = format_duration(finished.seconds)
        console.print(f"Training ended after {duration}: {finished.reason}.", soft_wrap=True)
    return finished


class _LogView:
    """Prints a line for each important event, and a progress line every `LOG_SECONDS`."""

    live: Live | nullcontext[None] = nullcontext()

    def __init__(self, console: Console) -> None:
        self.console, self.pace, self.last = console, _StageSpeed(), time.monotonic()

    def close(self) -> None:
        """Ends the display."""

    def print(self, *lines: str) -> None:
        self.last = time.monotonic()
        for line in lines:
            self.console.print(line, soft_wrap=True, markup=False)

    def show(self, event: Event) -> None:
        is_due = time.monotonic() - self.last > LOG_SECONDS
        match event:
            case Stage():
                is_new, count = self.pace.name != event.name, self.pace.describe(event)
                if is_new:
                    self.print(f"{event.name} ...")
                elif is_due:
                    self.print(f"{event.name}: {count}")
            case Note():
                self.print(event.text)
            case Prepared():
                self.print(*describe_plan(event))
            case Evaluation():
                self.print(describe_evaluation(event))
            case Progress() if is_due:
                self.print(
                    f"step {event.step:,}  loss {event.loss:.3f}  perplexity {event.perplexity:.1f}  "
                    f"{event.tokens_per_second:,.0f} tokens/s  {format_duration(event.seconds_left)} left"
                )


class _LiveView(_LogView):
    """Shows a bar, the current figures, and the last evaluation with a sample translation."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        count = TextColumn("{task.fields[count]}")
        self.bar = Bar(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(None), count, expand=True)
        self.task = self.bar.add_task("starting", total=None, count="")
        self.progress: Progress | None = None
        self.evaluation: Evaluation | None = None
        self.speed = 0.0
        self.live = Live(get_renderable=self.render, console=console, refresh_per_second=4)

    def close(self) -> None:
        self.bar.remove_task(self.task)

    def show(self, event: Event) -> None:
        match event:
            case Stage():
                self.progress = self.evaluation = None  # they may belong to a model that was trained before
                count = self.pace.describe(event)
                self.bar.update(self.task, description=event.name, completed=event.done, total=event.total, count=count)
            case Prepared():
                super().show(event)
                self.bar.update(self.task, description="training", completed=event.step, total=event.steps, count="")
            case Progress():
                self.progress = event
                self.speed += (event.tokens_per_second - self.speed) * (0.05 if self.speed else 1.0)
                left = format_duration(event.seconds_left)
                count = f"step {event.step:,} / {self.bar.tasks[0].total:,.0f}, {left} left"
                self.bar.update(self.task, completed=event.step, count=count)
            case Evaluation():
                self.evaluation = event
            case _:
                super().show(event)

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self.bar]
        if now := self.progress:
            figures = f"loss {now.loss:.3f}   perplexity {now.perplexity:.2f}   {self.speed:,.0f} tokens/s"
            parts.append(Text(f"  {figures}   learning rate {now.learning_rate:.2e}   epoch {now.epoch + 1}"))
        if last := self.evaluation:
            parts.append(Text("  " + describe_evaluation(last), style="green" if last.best else "yellow"))
            table = Table.grid(padding=(0, 1))
            for label, text in last.sample:
                sample = Text(" ".join(text.split()), overflow="ellipsis", no_wrap=True)
                table.add_row(Text(f"  {label:>9}", style="dim"), sample)
            parts.append(table)
        return Group(*parts)


class _StageSpeed:
    """Measures the speed of a stage and estimates its remaining time."""

    def __init__(self) -> None:
        self.name, self.first, self.start = "", 0, 0.0

    def describe(self, event: Stage) -> str:
        """Returns the progress of the stage, with its speed and the time left as soon as they are known."""
        now = time.monotonic()
        if event.name != self.name:
            self.name, self.first, self.start = event.name, event.done, now
        count = f"{event.done:,}" + (f" / {event.total:,}" if event.total else "")
        seconds, done = now - self.start, event.done - self.first
        if not event.total or done <= 0 or seconds < SPEED_SECONDS:
            return count
        left = (event.total - event.done) * seconds / done
        return f"{count}, {done / seconds:,.1f}/s, {format_duration(left)} left"


def describe_plan(event: Prepared) -> tuple[str, str]:
    """Returns two lines that describe the training before it starts."""
    start = f" from step {event.step:,}" if event.step else ""
    return (
        f"Preset {event.preset}: {event.reason}." if event.preset != "auto" else f"{event.reason.capitalize()}.",
        f"Training{start} on {event.examples:,} {event.unit} ({event.held_out:,} held out as dev set): "
        f"{event.parameters:,} parameters, {event.vocabulary:,} tokens in the vocabulary, on {event.device}.",
    )


def describe_evaluation(event: Evaluation) -> str:
    """Returns the scores of an evaluation as one line."""
    best = "  (best so far)" if event.best else ""
    scores = "".join(_format_score(name, value) + "  " for name, value in event.scores.items())
    return f"dev at step {event.step:,}: {scores}perplexity {event.perplexity:.2f}{best}"


def _format_score(name: str, value: float) -> str:
    """bleu en-de, 20.1 -> en-de BLEU 20.1"""
    metric, _, direction = name.partition(" ")
    return f"{direction} {SCORES[metric].format(value)}".lstrip()


def format_duration(seconds: float) -> str:
    """90 -> 1 min 30 s"""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def bar_on_stderr(*columns: ProgressColumn, redirect_stdout: bool = True) -> Bar:
    """Returns an empty progress bar on standard error, which is hidden unless standard error is a terminal."""
    console = Console(stderr=True)
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        disable=not console.is_terminal,
        transient=True,
        refresh_per_second=4,
        redirect_stdout=redirect_stdout,
    )


def show_sentences(
    items: Generator[T], sizes: deque[int], total: int | None, name: str = "translating"
) -> Generator[T]:
    """Yields the items and shows a progress bar on standard error.

    `sizes` contains the size of each item, which is removed when the item is done; `total` is the sum of all sizes.
    """
    columns = TextColumn("{task.fields[done]:,} sentences, {task.fields[speed]:,.1f}/s"), TimeRemainingColumn()
    bar = bar_on_stderr(*columns, redirect_stdout=False)  # redirected lines would go to standard error
    with closing(items), bar:
        task, start = bar.add_task(name, total=total, done=0, speed=0.0), time.monotonic()
        for done, item in enumerate(items, 1):
            yield item
            speed = done / max(0.001, time.monotonic() - start)
            bar.update(task, advance=sizes.popleft(), done=done, speed=speed)
