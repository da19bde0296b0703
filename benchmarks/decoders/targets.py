"""The targets of the native engine beside CTranslate2, and whether a report meets them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.decoders.measures import (
    BATCHES,
    SINGLES,
    WORKLOADS,
    Record,
    advantage,
    bleu,
    construct_seconds,
    load_seconds,
    median,
    median_milliseconds,
    p95_milliseconds,
    peak,
    select,
    sentences_per_second,
)

SPEED = {"small": 1.25, "base": 1.1}
STRETCH = 1.5
LATENCY = 2.5
MOST_LOST = 0.2  # BLEU, by int8


@dataclass(frozen=True)
class Target:
    """A limit and the measured value; `stretch` is a second limit, beyond the one that was asked for."""

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


def targets(report: Record, model: str) -> list[Target]:
    both = [each for precision in ("float32", "int8") for each in speed_and_cost(report, model, precision)]
    same = select(report["same"], model=model, engine="native-float32", workload="greedy")
    share = (same[0]["equal"] + same[0]["ties"]) / same[0]["of"] if same else None
    agreement = Target("float32, greedy: outputs equal to PyTorch's up to ties, share", "≥", 1.0, share)
    return [*both, agreement, *quality(report, model)]


def speed_and_cost(report: Record, model: str, precision: str) -> list[Target]:
    ours, theirs, found = f"native-{precision}", f"ct2-{precision}", list[Target]()
    for name in BATCHES:
        ratio = median(advantage(report, model, ours, name, sentences_per_second))
        what = f"{precision}, {WORKLOADS[name].title}: sentences/s ÷ CTranslate2's"
        found.append(Target(what, "≥", SPEED.get(model, 1.0), ratio, STRETCH))
    for name in SINGLES:
        for label, value in (("median", median_milliseconds), ("p95", p95_milliseconds)):
            ratio = median(advantage(report, model, ours, name, value))
            what = f"{precision}, {WORKLOADS[name].title}, {label}: CTranslate2's latency ÷ ours"
            found.append(Target(what, "≥", LATENCY, ratio))
    mine, other = ([*costs(report, model, engine)] for engine in (ours, theirs))
    for what, one, two in zip(
        ("peak memory", "load time, library included", "load time, model alone"), mine, other, strict=True
    ):
        ratio = one / two if one is not None and two is not None else None
        found.append(Target(f"{precision}, {what} ÷ CTranslate2's", "≤", 1.0, ratio))
    return found


def costs(report: Record, model: str, engine: str) -> tuple[float | None, float | None, float | None]:
    """Returns peak memory, load time with the library, and load time of the model alone."""
    loads = select(report["loads"], model=model, engine=engine)
    whole, alone = (median([*map(value, loads)]) for value in (load_seconds, construct_seconds))
    return peak(report, model, engine), whole, alone


def quality(report: Record, model: str) -> list[Target]:
    """Requires that int8 loses little BLEU, and no more than CTranslate2's int8 does."""
    found = []
    for name in BATCHES:
        ours, theirs = (lost(report, model, engine, name) for engine in ("native", "ct2"))
        what = f"int8, {WORKLOADS[name].title}: BLEU lost"
        found.append(Target(what, "≤", MOST_LOST, ours))
        if theirs is not None:
            found.append(Target(f"{what}, against CTranslate2's loss", "≤", theirs, ours))
    return found


def lost(report: Record, model: str, engine: str, workload: str) -> float | None:
    """Returns the BLEU of float32 less that of int8, to two places, as it is shown."""
    whole, small = (bleu(report, model, f"{engine}-{precision}", workload) for precision in ("float32", "int8"))
    return None if whole is None or small is None else round(whole - small, 2)
