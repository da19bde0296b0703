"""Speeds, latencies, memory and BLEU of the runs in a report, and ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.decoders.adapters import ENGINES

Record = dict[str, Any]
Value = Callable[[Record], float]
Rounds = dict[int, float]


@dataclass(frozen=True)
class Workload:
    """A task for an engine: all sentences at once or one after the other, greedy or with a beam."""

    title: str
    beam: int
    single: bool = False

    @property
    def command(self) -> str:
        return "single" if self.single else "batch"


WORKLOADS = {
    "greedy": Workload("greedy", 1),
    "beam": Workload("beam 5", 5),
    "one-greedy": Workload("one sentence, greedy", 1, single=True),
    "one-beam": Workload("one sentence, beam 5", 5, single=True),
}
BATCHES = [name for name, workload in WORKLOADS.items() if not workload.single]
SINGLES = [name for name, workload in WORKLOADS.items() if workload.single]


def select(records: Sequence[Record], **wanted: Any) -> list[Record]:
    """Returns the records that have these values."""
    return [each for each in records if all(each.get(key) == value for key, value in wanted.items())]


def sentences_per_second(run: Record) -> float:
    return float(run["sentences"] / run["seconds"])


def median_milliseconds(run: Record) -> float:
    return 1e3 * statistics.median(run["latencies"])


def p95_milliseconds(run: Record) -> float:
    return 1e3 * percentile(run["latencies"], 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def by_round(report: Record, value: Value, **wanted: Any) -> Rounds:
    return {run["round"]: value(run) for run in select(report["runs"], **wanted)}


def quotients(above: Rounds, below: Rounds) -> list[float]:
    """Divides one value by the other, in each round that has both."""
    return [above[number] / below[number] for number in sorted(above.keys() & below.keys())]


def advantage(report: Record, model: str, engine: str, workload: str, value: Value) -> list[float]:
    """Returns the speed of an engine relative to CTranslate2 at the same precision, in each round."""
    ours = by_round(report, value, model=model, engine=engine, workload=workload)
    theirs = by_round(report, value, model=model, engine=ENGINES[engine].rival, workload=workload)
    return quotients(theirs, ours) if WORKLOADS[workload].single else quotients(ours, theirs)


def bleu(report: Record, model: str, engine: str, workload: str) -> float | None:
    """Returns the BLEU of the first round."""
    runs = select(report["runs"], model=model, engine=engine, workload=workload)
    return round(float(runs[0]["bleu"]), 2) if runs else None


def load_seconds(load: Record) -> float:
    """Returns the time from before the engine's library is imported until the engine is ready."""
    return float(load["import_seconds"] + load["construct_seconds"])


def construct_seconds(load: Record) -> float:
    return float(load["construct_seconds"])


def peak(report: Record, model: str, engine: str) -> float | None:
    """Returns the most memory that a process of this engine held, over the workloads."""
    runs = select(report["runs"], model=model, engine=engine)
    return max((float(run["peak_mib"]) for run in runs), default=None)
