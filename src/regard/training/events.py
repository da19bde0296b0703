"""The events of a training run, and their log in the model folder, which has one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.atomic_files import write_text


@dataclass(frozen=True)
class Stage:
    """Progress of a stage of preparation; without a `total` if it is unknown."""

    name: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Note:
    """A one-line message for the user."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """Preparation is complete; describes the data and the model."""

    examples: int
    held_out: int  # size of the dev set
    unit: str  # what an example is: pairs, tokens or texts
    preset: str
    reason: str  # why this preset was chosen
    vocabulary: int
    parameters: int
    device: str
    step: int  # 0, or the step at which a resumed run continues
    steps: int


@dataclass(frozen=True)
class Progress:
    """Progress of training after one update of the weights."""

    step: int
    epoch: int
    loss: float  # label-smoothed, in nats per token
    perplexity: float
    learning_rate: float
    gradient: float  # norm of the gradient before clipping
    tokens_per_second: float  # source and target tokens, without padding
    seconds_left: float  # estimated time until the last step, without evaluations


@dataclass(frozen=True)
class Evaluation:
    """Scores of the model on the dev set."""

    step: int
    loss: float
    perplexity: float
    scores: dict[str, float]  # task-specific scores
    best: bool
    sample: list[tuple[str, str]]  # a sample output as (label, text) lines
    seconds: float = 0.0  # time spent on updates so far


@dataclass(frozen=True)
class Finished:
    """Training has finished or was stopped; the model folder is complete."""

    reason: str
    complete: bool  # False if --resume can continue the run
    step: int
    seconds: float
    scores: dict[str, list[str]]  # scores on "dev" and, if there is one, "test", with their signatures


Event = Stage | Note | Prepared | Progress | Evaluation | Finished


class Training(Iterator[Event]):
    """An iterator over the events of a training run, which makes progress only while it is being iterated."""

    def __init__(self, folder: Path, events: Generator[Event, None, None]) -> None:
        self.folder, self.events = folder, events
        self.last: Event | None = None

    def __next__(self) -> Event:
        self.last = next(self.events)
        return self.last

    def close(self) -> None:
        """Stops training without writing another checkpoint; `resume` continues from the last one."""
        self.events.close()

    def __repr__(self) -> str:
        state = "not started; loop over it to train" if self.last is None else repr(self.last)
        return f"<Training of {self.folder}: {state}>"


def append_event(path: Path, event: Event) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": type(event).__name__, **asdict(event)}, ensure_ascii=False) + "\n")


def trim_log(path: Path, step: int) -> None:
    """Removes the events after the step from which a run resumes."""
    if not path.exists():
        return
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a crash cut this line off
        if event["step"] <= step and event["event"] != "Finished":
            lines.append(line + "\n")
    write_text(path, "".join(lines))
