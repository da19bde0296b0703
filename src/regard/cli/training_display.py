"""How training looks in a terminal, and how it reads in a log file."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress as Bar, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress, Stage

PLAIN_SECONDS = 30.0
"""Between two lines of progress where the output is not a terminal."""


def show_training(events: Iterable[Event], console: Console | None = None) -> Finished:
    """Shows a run until it ends; live in a terminal, a line now and then elsewhere."""
    finished = show_events(events, console)
    assert finished is not None, "a run ends with Finished"
    return finished


def show_events(events: Iterable[Event], console: Console | None = None) -> Finished | None:
    """Shows a run until it ends, or until it is prepared, if it ends there."""
    console = console or Console(highlight=False)
    view = _Live(console) if console.is_terminal else _Lines(console)
    finished = None
    with view:
        for event in events:
            view.show(event)
            if isinstance(event, Finished):
                finished = event
    if finished is None:
        return None
    for name, scores in finished.scores.items():
        console.print(f"[bold]{name}[/bold]  " + "\n     ".join(scores), soft_wrap=True)
    if finished.complete:
        console.print(f"Training ended after {duration(finished.seconds)}: {finished.reason}.", soft_wrap=True)
    return finished


class _Lines:
    """A line for everything that matters."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = time.monotonic()
        self.pace = _Pace()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        if isinstance(event, Stage):
            known, count = self.pace.name == event.name, self.pace.describe(event)
            if not known:
                self.say(f"{event.name} ...")
            elif time.monotonic() - self.last > PLAIN_SECONDS:
                self.say(f"{event.name}: {count}")
        elif isinstance(event, Note):
            self.say(event.text)
        elif isinstance(event, Prepared):
            for line in introduce(event):
                self.say(line)
        elif isinstance(event, Evaluation):
            self.say(describe(event))
        elif isinstance(event, Progress) and time.monotonic() - self.last > PLAIN_SECONDS:
            self.say(
                f"step {event.step:,}  loss {event.loss:.3f}  perplexity {event.perplexity:.1f}  "
                f"{event.tokens_per_second:,.0f} tokens/s  {duration(event.seconds_left)} left"
            )

    def say(self, text: str) -> None:
        self.last = time.monotonic()
        self.console.print(text, soft_wrap=True, markup=False)


class _Live:
    """A bar, the figures of the moment, and the last evaluation with a sample translation."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.fields[count]}"),
            expand=True,
        )
        self.task = self.bar.add_task("starting", total=None, count="")
        self.progress: Progress | None = None
        self.evaluation: Evaluation | None = None
        self.speed = 0.0
        self.pace = _Pace()
        self.live = Live(get_renderable=self.render, console=console, refresh_per_second=4)

    def __enter__(self) -> _Live:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.remove_task(self.task)
        self.live.stop()

    def show(self, event: Event) -> None:
        if isinstance(event, Stage):
            self.progress = self.evaluation = None  # of a model that was trained first
            count = self.pace.describe(event)
            self.bar.update(self.task, description=event.name, completed=event.done, total=event.total, count=count)
        elif isinstance(event, Note):
            self.console.print(event.text, markup=False)
        elif isinstance(event, Prepared):
            for line in introduce(event):
                self.console.print(line, markup=False)
            self.bar.update(self.task, description="training", completed=event.step, total=event.steps, count="")
        elif isinstance(event, Progress):
            self.progress = event
            self.speed += (event.tokens_per_second - self.speed) * (0.05 if self.speed else 1.0)
            count = f"step {event.step:,} / {self.bar.tasks[0].total:,.0f}, {duration(event.seconds_left)} left"
            self.bar.update(self.task, completed=event.step, count=count)
        elif isinstance(event, Evaluation):
            self.evaluation = event

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self.bar]
        if self.progress:
            p = self.progress
            parts.append(
                Text(
                    f"  loss {p.loss:.3f}   perplexity {p.perplexity:.2f}   {self.speed:,.0f} tokens/s   "
                    f"learning rate {p.learning_rate:.2e}   epoch {p.epoch + 1}"
                )
            )
        if self.evaluation:
            e = self.evaluation
            parts.append(Text("  " + describe(e), style="green" if e.best else "yellow"))
            table = Table.grid(padding=(0, 1))
            for label, text in e.sample:
                shown = Text(" ".join(text.split()), overflow="ellipsis", no_wrap=True)
                table.add_row(Text(f"  {label:>9}", style="dim"), shown)
            parts.append(table)
        return Group(*parts)


class _Pace:
    """How fast a stage goes, and how long it will take; measured from where it began, or a resumed run went on."""

    def __init__(self) -> None:
        self.name, self.first, self.began = "", 0, 0.0

    def describe(self, event: Stage) -> str:
        """How far the stage is, and when it is through once some seconds can tell."""
        now = time.monotonic()
        if event.name != self.name:
            self.name, self.first, self.began = event.name, event.done, now
        count = f"{event.done:,}" + (f" / {event.total:,}" if event.total else "")
        seconds, done = now - self.began, event.done - self.first
        if not event.total or done <= 0 or seconds < PACE_SECONDS:
            return count
        left = (event.total - event.done) * seconds / done
        return f"{count}, {done / seconds:,.1f}/s, {duration(left)} left"


PACE_SECONDS = 2.0
"""Of a stage, before its speed is told."""


def introduce(event: Prepared) -> list[str]:
    """What is about to be trained, in two lines."""
    start = f" from step {event.step:,}" if event.step else ""
    return [
        f"Preset {event.preset}: {event.reason}." if event.preset != "auto" else f"{event.reason.capitalize()}.",
        f"Training{start} on {event.examples:,} {event.unit} ({event.held_out:,} held out as dev set): "
        f"{event.parameters:,} parameters, {event.vocabulary:,} tokens in the vocabulary, on {event.device}.",
    ]


def describe(event: Evaluation) -> str:
    best = "  (best so far)" if event.best else ""
    scores = "".join(tell_score(name, value) + "  " for name, value in event.scores.items())
    return f"dev at step {event.step:,}: {scores}perplexity {event.perplexity:.2f}{best}"


def tell_score(name: str, value: float) -> str:
    """A score, of one direction where its name says so: en-de BLEU 20.1."""
    metric, _, direction = name.partition(" ")
    return f"{direction} {SCORES[metric].format(value)}".lstrip()


SCORES = {
    "bleu": "BLEU {:.1f}",
    "chrf": "chrF {:.1f}",
    "accuracy": "accuracy {:.1f} %",
    "f1": "F1 {:.1f} %",
    "nats_per_character": "{:.4f} nats a character",
}


def duration(seconds: float) -> str:
    """90 -> 1 min 30 s"""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
