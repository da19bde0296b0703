"""How a run looks: a line now and then in a log, a bar and a sample in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from regard.cli import progress_display as display
from regard.cli.progress_display import format_duration, show_training
from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress, Stage
from regard.training.run import TASKS

PROGRESS = Progress(
    step=1_500,
    epoch=2,
    loss=3.25,
    perplexity=12.5,
    learning_rate=0.001,
    gradient=1.0,
    tokens_per_second=9_876.0,
    seconds_left=90.0,
)
SAMPLE = [("source", "a [bold]dog"), ("model", "ein [bold]Hund :dog:"), ("reference", "der Hund")]
EVENTS: list[Event] = [
    Stage("reading", 0),
    Stage("reading", 5_000, 10_000),
    Note("train: [red]3 left out (x.en:7)"),
    Prepared(1_200, 100, "pairs", "tiny", "1,200 pairs are fewer than 50,000", 400, 12_345, "cpu", 0, 2_000),
    PROGRESS,
    Evaluation(1_500, 2.0, 7.39, {"bleu": 21.5, "chrf": 44.0}, True, SAMPLE),
    replace(PROGRESS, step=2_000, seconds_left=0.0),
    Evaluation(2_000, 2.0, 7.41, {"bleu": 21.4, "chrf": 43.0}, False, SAMPLE),
    Finished("all 2,000 steps are done", True, 2_000, 3_700.0, {"dev": ["BLEU 21.50", "chrF 44.00"]}),
]


def show(events: list[Event], terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, highlight=False, color_system=None)

    def told() -> Iterator[Event]:
        for event in events:
            yield event
            if terminal:
                view = console._live_stack[-1] if console._live_stack else None
                assert view is not None
                view.refresh()  # every moment is seen, however fast the machine

    finished = show_training(told(), console)
    assert finished is events[-1]
    return file.getvalue()


def test_in_a_log_every_line_matters() -> None:
    assert show(EVENTS, terminal=False).splitlines() == [
        "reading ...",
        "train: [red]3 left out (x.en:7)",
        "Preset tiny: 1,200 pairs are fewer than 50,000.",
        "Training on 1,200 pairs (100 held out as dev set): 12,345 parameters, 400 tokens in the vocabulary, on cpu.",
        "dev at step 1,500: BLEU 21.5  chrF 44.0  perplexity 7.39  (best so far)",
        "dev at step 2,000: BLEU 21.4  chrF 43.0  perplexity 7.41",
        "dev  BLEU 21.50",
        "     chrF 44.00",
        "Training ended after 1 h 1 min: all 2,000 steps are done.",
    ]


def test_in_a_log_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LOG_SECONDS", -1.0)
    lines = show([*EVENTS[:5], EVENTS[-1]], terminal=False).splitlines()
    assert "step 1,500  loss 3.250  perplexity 12.5  9,876 tokens/s  1 min 30 s left" in lines


def test_in_a_terminal_everything_is_seen() -> None:
    seen = show(EVENTS, terminal=True)
    for text in (
        "reading",
        "5,000 / 10,000",
        "train: [red]3 left out (x.en:7)",
        "Preset tiny: 1,200 pairs are fewer than 50,000.",
        "step 1,500 / 2,000, 1 min 30 s left",
        "loss 3.250   perplexity 12.50   9,876 tokens/s   learning rate 1.00e-03   epoch 3",
        "dev at step 1,500: BLEU 21.5  chrF 44.0  perplexity 7.39  (best so far)",
        "source a [bold]dog",
        "model ein [bold]Hund :dog:",
        "reference der Hund",
        "dev  BLEU 21.50\n     chrF 44.00\n",
        "Training ended after 1 h 1 min: all 2,000 steps are done.",
    ):
        assert text in seen


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_that_was_stopped_has_not_ended(terminal: bool) -> None:
    stopped = Finished("stopped", False, 1_500, 60.0, {})
    seen = show([*EVENTS[:5], stopped], terminal)
    assert "ended" not in seen


@pytest.mark.parametrize("terminal", [False, True])
def test_a_resumed_run_says_where_it_goes_on(terminal: bool) -> None:
    prepared = Prepared(1_200, 100, "pairs", "tiny", "as asked", 400, 12_345, "cpu", 700, 2_000)
    seen = show([prepared, EVENTS[-1]], terminal)
    assert "Preset tiny: as asked.\n" in seen
    assert "Training from step 700 on 1,200 pairs" in seen


def test_every_score_of_a_task_has_words() -> None:
    named = {name for task in TASKS.values() for name in task.shown_scores}
    assert named == set(display.SCORES)
    evaluation = Evaluation(10, 1.0, 2.72, {"accuracy": 91.25, "f1": 90.0}, False, [])
    assert display.describe_evaluation(evaluation) == "dev at step 10: accuracy 91.2 %  F1 90.0 %  perplexity 2.72"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599.6, "1 h 0 min"), (7384, "2 h 3 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_stage_tells_its_pace_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0, 120.0])  # of this module alone: other threads read the real one
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    pace = display._StageSpeed()
    assert pace.describe(Stage("translating", 1_000, 3_000)) == "1,000 / 3,000"  # resumed here
    assert pace.describe(Stage("translating", 1_500, 3_000)) == "1,500 / 3,000, 50.0/s, 30 s left"
    assert pace.describe(Stage("reading", 5_000)) == "5,000"


def test_in_a_log_a_long_stage_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LOG_SECONDS", -1.0)
    stages: list[Event] = [Stage("translating", 0, 300), Stage("translating", 100, 300)]
    assert show([*stages, EVENTS[-1]], terminal=False).splitlines()[:2] == ["translating ...", "translating: 100 / 300"]
