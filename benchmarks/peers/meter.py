"""What every runner is given, and what it gives back.

A runner is `python -m benchmarks.peers.NAME JOB`: JOB is one JSON object (the fields of `Job`), and the last
line that it prints is one JSON object (what `Meter.report` writes). A runner trains with its toolkit's own
trainer; the meter only watches the batches go by.
"""

import importlib.metadata
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

BatchT = TypeVar("BatchT")


@dataclass(frozen=True)
class Job:
    """One run of one system: the data, the model's shape, and how long to train."""

    ids: str  # JSON: {"source": [[id, ...], ...], "target": [...]}, without begin and end
    source: str  # the same ids as text, a sentence a line, for toolkits that read files
    target: str
    vocabulary: str  # the ids from 4 on as text, one a line
    tokenizer: str  # tokenizer.json, whose ids these are
    vocabulary_size: int  # with the four specials
    pad: int
    unknown: int
    begin: int
    end: int
    layers: int  # encoder layers, and as many decoder layers
    width: int
    feed_forward: int
    heads: int
    dropout: float  # on embeddings and sublayers; 0 on attention weights and activations where it can be set
    label_smoothing: float
    target_tokens: int  # real target tokens (with the end) that an average batch should hold
    steps: int  # timed
    warmup: int  # before them, at least 1
    threads: int
    seed: int
    scratch: str  # a folder of this run's own, deleted afterwards
    options: dict[str, Any]  # what a variant changes

    @classmethod
    def from_command_line(cls) -> "Job":
        return cls(**json.loads(sys.argv[1]))

    def sentences(self) -> tuple[list[list[int]], list[list[int]]]:
        data = json.loads(Path(self.ids).read_text(encoding="utf-8"))
        return data["source"], data["target"]


@dataclass(frozen=True)
class Counts:
    """What one batch holds.

    Real tokens are source tokens without begin and end, and target labels with the end. Positions are the
    elements of the source tensor and of the label tensor; padding is those of them that hold padding.
    """

    source_tokens: int
    target_tokens: int
    positions: int
    padding: int


class Finished(Exception):  # noqa: N818 - not an error: it leaves a trainer's loop before it saves anything
    """The timed steps are done."""


class Meter:
    """Times whole steps, from asking for a batch to asking for the next, and counts what is in them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps = 0
        self.seconds = 0.0
        self.peak_rss_mib = 0.0
        self._totals = [0, 0, 0, 0]
        self._started: float | None = None

    def watch(self, batches: Iterable[BatchT], count: Callable[[BatchT], Counts]) -> Iterator[BatchT]:
        """Pass on the batches; raise Finished when the trainer asks for one more than it needs."""
        source = iter(batches)
        for _ in range(self.job.warmup):
            yield next(source)
        self.start()
        for _ in range(self.job.steps):
            batch = next(source)
            self.add(count(batch))
            yield batch
        self.stop()
        raise Finished

    def start(self) -> None:
        self._started = time.perf_counter()

    @property
    def running(self) -> bool:
        return self._started is not None and not self.seconds

    def add(self, counts: Counts) -> None:
        self.steps += 1
        batch = (counts.source_tokens, counts.target_tokens, counts.positions, counts.padding)
        self._totals = [total + value for total, value in zip(self._totals, batch, strict=True)]

    def stop(self) -> None:
        if self._started is None:
            raise RuntimeError("the meter was stopped before it was started")
        self.seconds = time.perf_counter() - self._started
        self.peak_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def report(self, *packages: str, weights: Iterable[Any]) -> None:
        """Print the result, with the versions of these packages, the system's own first."""
        if not self.seconds or self.steps != self.job.steps:
            raise RuntimeError(f"{self.steps} of {self.job.steps} steps were timed")
        source_tokens, target_tokens, positions, padding = self._totals
        result = {
            "seconds": self.seconds,
            "steps": self.steps,
            "source_tokens": source_tokens,
            "target_tokens": target_tokens,
            "positions": positions,
            "padding": padding,
            "peak_rss_mib": self.peak_rss_mib,
            "parameters": sum(weight.numel() for weight in weights if weight.requires_grad),
            "versions": {package: importlib.metadata.version(package) for package in packages},
        }
        sys.stdout.write("\n" + json.dumps(result) + "\n")
