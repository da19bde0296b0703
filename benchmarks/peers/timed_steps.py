"""Defines the job that every runner gets, and the result that it prints.

A runner is `python -m benchmarks.peers.NAME JOB`: JOB is one JSON object (the fields of `Job`), and the last
line that it prints is one JSON object (what `StepTimer.report` writes). A runner trains with its toolkit's own
trainer; the timer only watches the batches go by. Settings of a toolkit are in NAME.toml.
"""

import importlib.metadata
import json
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from string import Template
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
    scratch: str  # a folder for this run, which is deleted afterwards
    options: dict[str, Any]  # those of the variant

    @classmethod
    def from_command_line(cls) -> "Job":
        return cls(**json.loads(sys.argv[1]))

    def sentences(self) -> tuple[list[list[int]], list[list[int]]]:
        data = json.loads(Path(self.ids).read_text(encoding="utf-8"))
        return data["source"], data["target"]

    def settings(self, name: str, **more: Any) -> dict[str, Any]:
        """Reads NAME.toml, in which $width is a field of the job or a value of `more`."""
        return read_settings(name, asdict(self) | {"last_step": self.warmup + self.steps} | more)


def read_settings(name: str, values: dict[str, Any]) -> dict[str, Any]:
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(Template(text).substitute(values))


@dataclass(frozen=True)
class Counts:
    """The tokens of one batch.

    Real tokens are source tokens without begin and end, and target labels with the end. Positions are the
    elements of the source tensor and of the label tensor; padding is those of them that hold padding.
    """

    source_tokens: int
    target_tokens: int
    positions: int
    padding: int


class Finished(Exception):  # noqa: N818 - not an error: it leaves a trainer's loop before it saves anything
    """Raised when the timed steps are done."""


class StepTimer:
    """Times whole steps, from asking for a batch to asking for the next, and counts their tokens."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.counts: list[Counts] = []
        self.seconds = 0.0
        self.peak_rss_mib = 0.0
        self._started: float | None = None

    def watch(self, batches: Iterable[BatchT], count: Callable[[BatchT], Counts]) -> Iterator[BatchT]:
        """Passes on the batches; raises Finished when the trainer asks for one more than it needs."""
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

    def at_step(self, step: int) -> None:
        """Starts at the end of the last step of the warm-up, and stops at the end of the last timed one."""
        if step == self.job.warmup:
            self.start()
        elif step == self.job.warmup + self.job.steps:
            self.stop()

    def start(self) -> None:
        self._started = time.perf_counter()

    @property
    def running(self) -> bool:
        return self._started is not None and not self.seconds

    def add(self, counts: Counts) -> None:
        self.counts.append(counts)

    def stop(self) -> None:
        if self._started is None:
            raise RuntimeError("the timer was stopped before it was started")
        self.seconds = time.perf_counter() - self._started
        self.peak_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def report(self, *packages: str, weights: Iterable[Any]) -> None:
        """Prints the result, with the versions of these packages, the system's own first."""
        if not self.seconds or len(self.counts) != self.job.steps:
            raise RuntimeError(f"{len(self.counts)} of {self.job.steps} steps were timed")
        names = ("source_tokens", "target_tokens", "positions", "padding")
        result = {
            "seconds": self.seconds,
            "steps": len(self.counts),
            **dict(zip(names, map(sum, zip(*map(astuple, self.counts), strict=True)), strict=True)),
            "peak_rss_mib": self.peak_rss_mib,
            "parameters": sum(weight.numel() for weight in weights if weight.requires_grad),
            "versions": {package: importlib.metadata.version(package) for package in packages},
        }
        sys.stdout.write("\n" + json.dumps(result) + "\n")
