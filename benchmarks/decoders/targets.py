"""The targets of the native engine beside CTranslate2, and whether a report meets them."""

from __future__ import annotations

from benchmarks.decoders import measures
from benchmarks.decoders.measures import BATCHES, WORKLOADS, Record, Value, median
from benchmarks.tables import Row

SPEED, STRETCH, LATENCY = {"small": 1.25, "base": 1.1}, 1.5, 2.5
MOST_LOST = 0.2  # BLEU, by int8
BATCH: dict[str, Value] = {"sentences/s ÷ CTranslate2's": measures.sentences_per_second}
SINGLE: dict[str, Value] = {
    "median: CTranslate2's latency ÷ ours": measures.median_milliseconds,
    "p95: CTranslate2's latency ÷ ours": measures.p95_milliseconds,
}


def targets(report: Record, model: str) -> list[Row]:
    rows = []
    for precision in ("float32", "int8"):
        ours, theirs = f"native-{precision}", f"ct2-{precision}"
        for name, workload in WORKLOADS.items():
            for what, value in (SINGLE if workload.single else BATCH).items():
                ratio = median(measures.advantage(report, model, ours, name, value))
                wanted, stretch = (LATENCY, None) if workload.single else (SPEED.get(model, 1.0), STRETCH)
                rows.append(row(f"{precision}, {workload.title}, {what}", "≥", wanted, ratio, stretch))
        costs = zip(measures.costs(report, model, ours), measures.costs(report, model, theirs), strict=True)
        for what, (mine, other) in zip(
            ("peak memory", "load time with library", "load time alone"), costs, strict=True
        ):
            ratio = mine / other if mine is not None and other is not None else None
            rows.append(row(f"{precision}, {what} ÷ CTranslate2's", "≤", 1.0, ratio))
    for same in measures.select(report["same"], model=model, engine="native-float32", workload="greedy"):
        share = (same["equal"] + same["ties"]) / same["of"]
        rows.append(row("float32, greedy, share of outputs equal to PyTorch's up to ties", "≥", 1.0, share))
    for name in BATCHES:
        lost, theirs_lost = (measures.lost(report, model, engine, name) for engine in ("native", "ct2"))
        rows.append(row(f"int8, {WORKLOADS[name].title}, BLEU lost", "≤", MOST_LOST, lost))
        if theirs_lost is not None:
            what = f"int8, {WORKLOADS[name].title}, BLEU lost, against CTranslate2's loss"
            rows.append(row(what, "≤", theirs_lost, lost))
    return rows


def row(what: str, sign: str, wanted: float, measured: float | None, stretch: float | None = None) -> Row:
    """Compares a value with a limit, and with `stretch`, a second limit beyond it."""
    if measured is None:
        verdict = "not measured"
    elif not (measured >= wanted if sign == "≥" else measured <= wanted):
        verdict = "**not met**"
    else:
        verdict = "met" if stretch is None or measured < stretch else f"met, and {stretch:g} as well"
    return {"what": what, "target": f"{sign} {wanted:g}", "ratio": measured, "verdict": verdict}
