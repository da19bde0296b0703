"""Tables of a run of benchmarks/decoding.py, for the terminal and for its record."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.decoders import measures
from benchmarks.decoders.adapters import ENGINES
from benchmarks.decoders.measures import BATCHES, SINGLES, WORKLOADS, Record, Value, by_round, select
from benchmarks.decoders.tuning import Way
from benchmarks.tables import Row, Table, build, rounded, spread


def main_tables(report: Record) -> list[Table]:
    """Returns the tables that a record keeps: batches, single sentences, and the costs of the engines."""
    return [each for model in report["models"] for each in speeds(report, model) if each["rows"]]


def every_table(report: Record, model: str) -> list[Table]:
    details = (agreement, tuning, failures)
    return [each for each in (*speeds(report, model), *(make(report, model) for make in details)) if each["rows"]]


def speeds(report: Record, model: str) -> list[Table]:
    title = f"{model.upper()} on {report['machine']['processor']}"
    return [
        build(f"{title}, all sentences at once", batches(report, model), "", BATCH_BARS),
        build(f"{title}, one sentence at a time", singles(report, model), "", SINGLE_BARS),
        build(f"{title}, load and memory", costs(report, model)),
    ]


BATCH_BARS = {
    "names": ["engine", "precision"],
    "values": [f"{WORKLOADS[name].title}, sentences/s" for name in BATCHES],
    "unit": "sentences a second: longer is better",
}
SINGLE_BARS = {
    "names": ["engine", "precision"],
    "values": [f"{WORKLOADS[name].title}, median ms" for name in SINGLES],
    "unit": "milliseconds a sentence, median: shorter is better",
}


def by_engine(report: Record, model: str, workloads: Sequence[str], cells: Callable[[str], Row]) -> list[Row]:
    """Returns a row for each engine that ran one of these workloads, without empty cells."""
    ran = {run["engine"] for run in select(report["runs"], model=model) if run["workload"] in workloads}
    rows = [name_of(engine) | cells(engine) for engine in ENGINES if engine in ran]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def name_of(engine: str) -> Row:
    return {"engine": ENGINES[engine].title, "precision": ENGINES[engine].precision}


def compared(report: Record, model: str, engine: str, workload: str, value: Value) -> float | list[float] | None:
    if engine == ENGINES[engine].rival:
        return None
    return spread(measures.advantage(report, model, engine, workload, value), 2)


def batches(report: Record, model: str) -> list[Row]:
    def cells(engine: str) -> Row:
        row: Row = {}
        for name in BATCHES:
            place, title = {"model": model, "engine": engine, "workload": name}, WORKLOADS[name].title
            found = list(by_round(report, measures.sentences_per_second, **place).values())
            searches = [run for run in select(report["runs"], **place) if run["search_seconds"]]
            searched = [run["sentences"] / run["search_seconds"] for run in searches]
            row[f"{title}, sentences/s"] = spread(found, 0)
            row[f"{title} ÷ CTranslate2"] = compared(report, model, engine, name, measures.sentences_per_second)
            row[f"{title}, search alone, sentences/s"] = rounded(statistics.median(searched), 0) if searched else None
            row[f"{title} BLEU"] = measures.bleu(report, model, engine, name)
        return row

    return by_engine(report, model, BATCHES, cells)


def singles(report: Record, model: str) -> list[Row]:
    def cells(engine: str) -> Row:
        row: Row = {}
        for name in SINGLES:
            for label, value in (("median", measures.median_milliseconds), ("p95", measures.p95_milliseconds)):
                title = f"{WORKLOADS[name].title}, {label}"
                found = by_round(report, value, model=model, engine=engine, workload=name)
                row[f"{title} ms"] = spread(list(found.values()), 1)
                row[f"{title}, CTranslate2 ÷ it"] = compared(report, model, engine, name, value)
            row[f"{WORKLOADS[name].title}, BLEU"] = measures.bleu(report, model, engine, name)
        return row

    return by_engine(report, model, SINGLES, cells)


def costs(report: Record, model: str) -> list[Row]:
    def cells(engine: str) -> Row:
        loads, most = select(report["loads"], model=model, engine=engine), measures.peak(report, model, engine)
        return {
            "load s, library included": spread([measures.load_seconds(load) for load in loads], 2),
            "model alone, s": spread([measures.construct_seconds(load) for load in loads], 3),
            "MiB when loaded": rounded(statistics.median(load["loaded_mib"] for load in loads), 0) if loads else None,
            "peak MiB": None if most is None else round(most),
        }

    return by_engine(report, model, list(WORKLOADS), cells)


def agreement(report: Record, model: str) -> Table:
    rows = []
    for engine in dict.fromkeys(same["engine"] for same in select(report["same"], model=model)):
        base, comma, more = engine.partition(",")
        row = {"engine": ENGINES[base].title + comma + more, "precision": ENGINES[base].precision}
        for name, workload in WORKLOADS.items():
            for same in select(report["same"], model=model, engine=engine, workload=name):
                ties = f", {same['ties']} ties" if same["ties"] else ""
                row[workload.title] = f"{same['equal']:,} of {same['of']:,}{ties}"
        rows.append(row)
    note = (
        "Outputs that equal those of Regard with PyTorch, token by token. A tie is a greedy output that differs at a "
        "token whose score is within 0.001. Regard's beam search continues until no better output is possible; "
        "CTranslate2's stops when it has found as many as the beam (patience 1, its default, which is timed)."
    )
    return build(f"{model.upper()}: same outputs", rows, note)


def tuning(report: Record, model: str) -> Table:
    rows: list[Row] = []
    for entry in select(report["tuning"], model=model):
        seconds = [tried["seconds"] for tried in entry["tried"] if "seconds" in tried]
        engine = {"workload": WORKLOADS[entry["workload"]].title, "precision": ENGINES[entry["engine"]].precision}
        times = {"fastest": str(Way(**entry["chosen"])), "slowest ÷ fastest": max(seconds) / min(seconds)}
        rows.append(engine | times | {"ways tried": len(seconds), "failed": len(entry["tried"]) - len(seconds)})
    note = "Workers × threads of each worker, tried on a part of the sentences."
    return build(f"{model.upper()}: CTranslate2, tuned", rows, note)


def failures(report: Record, model: str) -> Table:
    rows = [
        name_of(each["engine"]) | {"workload": WORKLOADS[each["workload"]].title, "why": each["error"]}
        for each in select(report["failures"], model=model)
    ]
    return build(f"{model.upper()}: failed", rows)


def compact_log(report: Record) -> Record:
    """Returns the runs without what is long: milliseconds to a hundredth, and no lengths of sentences."""
    log = {name: report[name] for name in ("gemm_gflops", "tuning", "loads", "same", "failures")}
    log["runs"] = [
        {**run, "latencies": [round(each, 5) for each in run["latencies"]]} if "latencies" in run else run
        for run in report["runs"]
    ]
    return log
