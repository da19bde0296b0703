"""From a record of runs to figures: speeds, latencies, ratios within a round, and whether the bars are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.decoders.adapters import ENGINES
from benchmarks.decoders.limits import percentile

Record = dict[str, Any]
Value = Callable[[Record], float]
Rounds = dict[int, float]


@dataclass(frozen=True)
class Workload:
    """What is asked of an engine: all sentences at once or one after the other, greedy or with a beam."""

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


def found(records: Sequence[Record], **wanted: Any) -> list[Record]:
    """The records that have these values."""
    return [each for each in records if all(each.get(key) == value for key, value in wanted.items())]


def sentences_per_second(run: Record) -> float:
    return float(run["sentences"] / run["seconds"])


def median_milliseconds(run: Record) -> float:
    return 1e3 * statistics.median(run["latencies"])


def p95_milliseconds(run: Record) -> float:
    return 1e3 * percentile(run["latencies"], 0.95)


def by_round(report: Record, value: Value, **wanted: Any) -> Rounds:
    return {run["round"]: value(run) for run in found(report["runs"], **wanted)}


def quotients(above: Rounds, below: Rounds) -> list[float]:
    """One value over the other, in each round that has both."""
    return [above[number] / below[number] for number in sorted(above.keys() & below.keys())]


def advantage(report: Record, model: str, engine: str, workload: str, value: Value) -> list[float]:
    """How many times faster an engine is than CTranslate2 at the same precision, in each round."""
    ours = by_round(report, value, model=model, engine=engine, workload=workload)
    theirs = by_round(report, value, model=model, engine=ENGINES[engine].rival, workload=workload)
    return quotients(theirs, ours) if WORKLOADS[workload].single else quotients(ours, theirs)


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the range where there is one."""
    if not values:
        return "–"
    middle = format(statistics.median(values), form)
    return middle if len(values) == 1 else f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def bleu(report: Record, model: str, engine: str, workload: str) -> float | None:
    """Of the first round."""
    runs = found(report["runs"], model=model, engine=engine, workload=workload)
    return float(runs[0]["bleu"]) if runs else None


def load_seconds(load: Record) -> float:
    """From before the engine's library is imported until the engine is ready."""
    return float(load["import_seconds"] + load["construct_seconds"])


def typical_load(report: Record, model: str, engine: str, value: Value = load_seconds) -> float | None:
    loads = found(report["loads"], model=model, engine=engine)
    return statistics.median(map(value, loads)) if loads else None


def peak(report: Record, model: str, engine: str) -> float | None:
    """The most memory that a process of this engine held, over the workloads."""
    runs = found(report["runs"], model=model, engine=engine)
    return max((float(run["peak_mib"]) for run in runs), default=None)


# The bars

SPEED = {"small": 1.25, "base": 1.1}
STRETCH = 1.5
LATENCY = 2.5
MOST_LOST = 0.2  # BLEU, by int8


@dataclass(frozen=True)
class Bar:
    """What was aimed at, and what was measured; `stretch` is more than was asked."""

    model: str
    what: str
    sign: str
    wanted: float
    measured: float | None
    stretch: float | None = None

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.wanted if self.sign == "≥" else self.measured <= self.wanted

    @property
    def verdict(self) -> str:
        if self.met is None:
            return "not measured"
        if self.met and self.stretch is not None and self.measured is not None and self.measured >= self.stretch:
            return f"met, and {self.stretch:g} as well"
        return "met" if self.met else "**not met**"


def bars(report: Record) -> list[Bar]:
    """Every bar of every model in a report."""
    made = []
    for model in report["models"]:
        for precision in ("float32", "int8"):
            made += speed_bars(report, model, precision) + cost_bars(report, model, precision)
        made += [agreement_bar(report, model), *quality_bars(report, model)]
    return made


def middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def speed_bars(report: Record, model: str, precision: str) -> list[Bar]:
    engine, made = f"native-{precision}", []
    for name in BATCHES:
        ratio = middle(advantage(report, model, engine, name, sentences_per_second))
        what = f"{precision}, {WORKLOADS[name].title}: sentences/s ÷ CTranslate2's"
        made.append(Bar(model, what, "≥", SPEED.get(model, 1.0), ratio, STRETCH))
    for name in SINGLES:
        for label, value in (("median", median_milliseconds), ("p95", p95_milliseconds)):
            ratio = middle(advantage(report, model, engine, name, value))
            what = f"{precision}, {WORKLOADS[name].title}, {label}: CTranslate2's latency ÷ ours"
            made.append(Bar(model, what, "≥", LATENCY, ratio))
    return made


def cost_bars(report: Record, model: str, precision: str) -> list[Bar]:
    ours, theirs = f"native-{precision}", f"ct2-{precision}"
    costs: dict[str, Callable[[str], float | None]] = {
        "peak memory": lambda engine: peak(report, model, engine),
        "load time, library included": lambda engine: typical_load(report, model, engine),
        "load time, model alone": lambda engine: typical_load(
            report, model, engine, lambda load: float(load["construct_seconds"])
        ),
    }
    made = []
    for name, cost in costs.items():
        mine, other = cost(ours), cost(theirs)
        ratio = mine / other if mine is not None and other is not None else None
        made.append(Bar(model, f"{precision}, {name} ÷ CTranslate2's", "≤", 1.0, ratio))
    return made


def agreement_bar(report: Record, model: str) -> Bar:
    same = found(report["same"], model=model, engine="native-float32", workload="greedy")
    share = (same[0]["equal"] + same[0]["ties"]) / same[0]["of"] if same else None
    return Bar(model, "float32, greedy: outputs equal to PyTorch's up to ties, share", "≥", 1.0, share)


def quality_bars(report: Record, model: str) -> list[Bar]:
    """int8 loses little, and no more than CTranslate2's int8 does."""
    made = []
    for name in BATCHES:
        ours, theirs = (lost(report, model, engine, name) for engine in ("native", "ct2"))
        what = f"int8, {WORKLOADS[name].title}: BLEU lost"
        made.append(Bar(model, what, "≤", MOST_LOST, ours))
        if theirs is not None:
            made.append(Bar(model, f"{what}, against CTranslate2's loss", "≤", round(theirs, 2), ours))
    return made


def lost(report: Record, model: str, engine: str, workload: str) -> float | None:
    """The BLEU of float32 less that of int8, to two places, as it is shown."""
    whole, small = (bleu(report, model, f"{engine}-{precision}", workload) for precision in ("float32", "int8"))
    return None if whole is None or small is None else round(whole - small, 2)


# Whether a record is whole


def missing(report: Record) -> list[str]:
    """What a record lacks to be published: every model, engine and workload, on all of a thousand sentences."""
    absent = [f"model {name}" for name in SPEED if name not in report["models"]]
    absent += [
        f"{model}: {engine}, {WORKLOADS[workload].title}"
        for model in report["models"]
        for engine in ENGINES
        for workload in WORKLOADS
        if not found(report["runs"], model=model, engine=engine, workload=workload)
    ]
    if report["sentences"] < 1000:
        absent.append(f"sentences: {report['sentences']} of 1000")
    return absent
