"""The events of a training run, and the log of them in its folder: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.atomic_files import write_text


@dataclass(frozen=True)
class Stage:
    """Progress of the named stage of preparation; the total may be unknown."""

    name: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Note:
    """A message for the user, in one line."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """Training can begin: the size of the data and of the model."""

    examples: int
    held_out: int  # size of the dev set
    unit: str  # of examples: pairs, tokens or texts
    preset: str
    reason: str  # why this preset
    vocabulary: int
    parameters: int
    device: str
    step: int  # 0, or the step at which a resumed run continues
    steps: int


@dataclass(frozen=True)
class Progress:
    """One update of the weights."""

    step: int
    epoch: int
    loss: float  # label-smoothed, in nats per token
    perplexity: float
    learning_rate: float
    gradient: float  # norm before clipping
    tokens_per_second: float  # source and target, without padding
    seconds_left: float  # until the last step, without evaluations


@dataclass(frozen=True)
class Evaluation:
    """Scores of the model on the dev set."""

    step: int
    loss: float
    perplexity: float
    scores: dict[str, float]  # the scores of the task
    best: bool
    sample: list[tuple[str, str]]  # an output to look at: lines of a label and a text
    seconds: float = 0.0  # spent on updates so far


@dataclass(frozen=True)
class Finished:
    """Training is over or was stopped; the model folder is complete."""

    reason: str
    complete: bool  # False if --resume can continue the run
    step: int
    seconds: float
    scores: dict[str, list[str]]  # of "dev" and, if given, "test", each with its signature


Event = Stage | Note | Prepared | Progress | Evaluation | Finished


class Training(Iterator[Event]):
    """A training run that makes progress only while its events are read, as in a `for` loop."""

    def __init__(self, folder: Path, events: Generator[Event, None, None]) -> None:
        self.folder, self.events = folder, events
        self.last: Event | None = None

    def __next__(self) -> Event:
        self.last = next(self.events)
        return self.last

    def close(self) -> None:
        """Ends the training without another checkpoint; `resume` continues from the last one."""
        self.events.close()

    def __repr__(self) -> str:
        state = "not begun; loop over it to train" if self.last is None else repr(self.last)
        return f"<Training of {self.folder}: {state}>"


def append_event(path: Path, event: Event) -> None:
    """Adds an event to the log."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": type(event).__name__, **asdict(event)}, ensure_ascii=False) + "\n")


def trim_log(path: Path, step: int) -> None:
    """Removes the events after the step at which a resumed run continues."""
    if not path.exists():
        return
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a line that a kill cut off
        if event["step"] <= step and event["event"] != "Finished":
            lines.append(line + "\n")
    write_text(path, "".join(lines))
