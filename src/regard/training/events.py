"""What a training run tells while it goes on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """Preparation: how far the named stage has come; `total` is none while nobody knows it."""

    name: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Note:
    """Something that the user should know, in a line."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """Training can begin: what it learns from, and what it trains."""

    examples: int
    held_out: int  # as dev set
    unit: str  # what is counted: pairs, tokens or texts
    preset: str
    reason: str  # why this preset
    vocabulary: int
    parameters: int
    device: str
    step: int  # 0, or where a resumed run goes on
    steps: int


@dataclass(frozen=True)
class Progress:
    """One update of the weights."""

    step: int
    epoch: int
    loss: float  # label-smoothed, nats a token
    perplexity: float
    learning_rate: float
    gradient: float  # its norm before clipping
    tokens_per_second: float  # source and target, without padding
    seconds_left: float  # until the last step, evaluations not counted


@dataclass(frozen=True)
class Evaluation:
    """How the model does on the dev set."""

    step: int
    loss: float
    perplexity: float
    scores: dict[str, float]  # what the task measures beside the loss
    best: bool
    sample: list[tuple[str, str]]  # something to look at: lines of a label and a text
    seconds: float = 0.0  # of updates so far


@dataclass(frozen=True)
class Finished:
    """Training is over, or has paused; the model folder is whole."""

    reason: str
    complete: bool  # false where --resume can go on
    step: int
    seconds: float
    scores: dict[str, list[str]]  # of "dev" and, if given, "test", each with its signature


Event = Stage | Note | Prepared | Progress | Evaluation | Finished


class Training(Iterator[Event]):
    """A training that goes on as long as its events are read: a loop over it trains, and nothing else does."""

    def __init__(self, folder: Path, events: Generator[Event, None, None]) -> None:
        self.folder, self.events = folder, events
        self.last: Event | None = None

    def __next__(self) -> Event:
        self.last = next(self.events)
        return self.last

    def close(self) -> None:
        """Ends the training without another checkpoint; `resume` goes on from the last one."""
        self.events.close()

    def __repr__(self) -> str:
        state = "not begun; loop over it to train" if self.last is None else repr(self.last)
        return f"<Training of {self.folder}: {state}>"
