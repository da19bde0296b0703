"""What people read of a run of benchmarks/decoding.py: tables on the terminal, and a page with plots."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import records
from benchmarks.decoders.adapters import ENGINES
from benchmarks.decoders.figures import (
    BATCHES,
    SINGLES,
    WORKLOADS,
    Record,
    Value,
    advantage,
    bars,
    bleu,
    by_round,
    found,
    load_seconds,
    median_milliseconds,
    p95_milliseconds,
    peak,
    sentences_per_second,
    spread,
)
from benchmarks.decoders.limits import Shape, batch_limit, int8_rate, single_limit
from benchmarks.decoders.tuning import Way
from benchmarks.plots import Bars, draw_bars
from benchmarks.report import table as markdown
from benchmarks.training import console


@dataclass(frozen=True)
class Section:
    """A table with its title and a sentence or two."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    note: str = ""


def sections(report: Record, model: str) -> list[Section]:
    made = [batch(report, model, name) for name in BATCHES] + [single(report, model, name) for name in SINGLES]
    made += [costs(report, model), agreement(report, model), limits(report, model), targets(report, model)]
    made += [tuning(report, model), failures(report, model)]
    return [section for section in made if section.rows]


def engines_of(report: Record, model: str, workloads: Sequence[str]) -> list[str]:
    ran = {run["engine"] for run in found(report["runs"], model=model) if run["workload"] in workloads}
    return [engine for engine in ENGINES if engine in ran]


def name_of(engine: str) -> list[str]:
    return [ENGINES[engine].title, ENGINES[engine].precision]


def batch(report: Record, model: str, workload: str) -> Section:
    rows = []
    for engine in engines_of(report, model, [workload]):
        place = {"model": model, "engine": engine, "workload": workload}
        speeds = list(by_round(report, sentences_per_second, **place).values())
        searched = [run["sentences"] / run["search_seconds"] for run in searches(report, **place)]
        row = [spread(speeds, ",.1f"), ratio(report, model, engine, workload, sentences_per_second)]
        row += [f"{statistics.median(searched):,.1f}" if searched else "–", score(report, model, engine, workload)]
        rows.append([*name_of(engine), *row])
    heads = ["engine", "precision", "sentences/s", "it ÷ CTranslate2", "search alone, sentences/s", "BLEU"]
    note = f"All {report['sentences']:,} sentences at once, text in, text out; medians over the rounds and the range."
    return Section(f"All at once, {WORKLOADS[workload].title}", heads, rows, note)


def searches(report: Record, **place: Any) -> list[Record]:
    return [run for run in found(report["runs"], **place) if run["search_seconds"]]


def ratio(report: Record, model: str, engine: str, workload: str, value: Value) -> str:
    """Against CTranslate2 at the same precision; of itself there is nothing to say."""
    if engine == ENGINES[engine].rival:
        return ""
    return spread(advantage(report, model, engine, workload, value), ".2f")


def score(report: Record, model: str, engine: str, workload: str) -> str:
    value = bleu(report, model, engine, workload)
    return "–" if value is None else f"{value:.2f}"


def single(report: Record, model: str, workload: str) -> Section:
    rows = []
    for engine in engines_of(report, model, [workload]):
        row, place = name_of(engine), {"model": model, "engine": engine, "workload": workload}
        row.append(str(found(report["runs"], **place)[0]["sentences"]))
        for value in (median_milliseconds, p95_milliseconds):
            row.append(spread(list(by_round(report, value, **place).values()), ",.1f"))
            row.append(ratio(report, model, engine, workload, value))
        rows.append([*row, score(report, model, engine, workload)])
    heads = ["engine", "precision", "sentences", "median ms", "CTranslate2 ÷ it", "p95 ms", "CTranslate2 ÷ it", "BLEU"]
    title = WORKLOADS[workload].title
    return Section(title[:1].upper() + title[1:], heads, rows, "Each sentence by itself; BLEU is of these sentences.")


def costs(report: Record, model: str) -> Section:
    rows = []
    for engine in engines_of(report, model, list(WORKLOADS)):
        loads, most = found(report["loads"], model=model, engine=engine), peak(report, model, engine)
        built = [load["construct_seconds"] for load in loads]
        held = [load["loaded_mib"] for load in loads]
        row = [spread([load_seconds(load) for load in loads], ".2f"), spread(built, ".3f")]
        row += [f"{statistics.median(held):,.0f}", f"{most:,.0f}" if most else "–"]
        rows.append([*name_of(engine), *row])
    heads = ["engine", "precision", "load s, library included", "model alone", "MiB when loaded", "peak MiB"]
    note = "Of the engine's own process: from before its library is imported until it is ready; memory is VmHWM."
    return Section("Load time and memory", heads, rows, note)


def agreement(report: Record, model: str) -> Section:
    rows = []
    names = list(dict.fromkeys(same["engine"] for same in found(report["same"], model=model)))
    for engine in names:
        base, _, more = engine.partition(",")
        row = [ENGINES[base].title + ("," + more if more else ""), ENGINES[base].precision]
        for workload in WORKLOADS:
            same = found(report["same"], model=model, engine=engine, workload=workload)
            text = f"{same[0]['equal']:,} of {same[0]['of']:,}" if same else ""
            if same and same[0]["ties"]:
                text += f", {same[0]['ties']} ties"
            row.append(text)
        rows.append(row)
    note = (
        "Outputs that are, token by token, those of Regard by PyTorch; a tie is a greedy output that parts from it "
        "where two tokens are level to 0.001. Regard's beam goes on until nothing better can come, CTranslate2's stops "
        "when it has found as many as the beam is wide (patience 1, its default, which is timed)."
    )
    heads = ["engine", "precision", *(workload.title for workload in WORKLOADS.values())]
    return Section("Same outputs", heads, rows, note)


def limits(report: Record, model: str) -> Section:
    """What the machine allows for each workload, and how near ours and CTranslate2 come."""
    about, gflops = report["models"][model], max(report["gemm_gflops"], default=0.0)
    shape, width, rate = Shape(**about["shape"]), report["bandwidth"][model], int8_rate(report["machine"]["flags"])
    rows = []
    for name, lengths in about["lengths"].items():
        for precision in ("float32", "int8"):
            if WORKLOADS[name].single:
                limit, value = single_limit(shape, lengths, precision, width[precision])[0], median_milliseconds
                slow = single_limit(shape, lengths, precision, width["memory"])[0]
                text = f"{limit:.2f} ms (from memory {slow:.2f} ms)"
            else:
                faster, value = rate if precision == "int8" else 1.0, sentences_per_second
                limit = batch_limit(shape, lengths, WORKLOADS[name].beam, gflops, faster)
                text = f"{limit:,.0f} sentences/s"
            row = [WORKLOADS[name].title, precision, text]
            for engine in (f"native-{precision}", f"ct2-{precision}"):
                rounds = by_round(report, value, model=model, engine=engine, workload=name)
                reached = statistics.median(rounds.values()) / limit if rounds else 0.0
                row.append(f"{1 / reached if WORKLOADS[name].single else reached:.0%}" if rounds else "–")
            rows.append(row)
    sizes = {"float32": "the decoder in float32", "int8": "the decoder in int8", "memory": "1 GiB, beyond all caches"}
    rates = ", ".join(f"{width[name]:.0f} GB/s ({size})" for name, size in sizes.items())
    note = (
        f"Batches: all products at {gflops:.0f} GFLOP/s, the best float32 matrix product of this run; int8 at {rate:g} "
        "times that, an estimate. One sentence: the bytes of the weights that its tokens need, in float32 four "
        "each (Regard reads three of a large model's, and one of the output layer's), over the rate at which blocks of "
        f"that size are read: {rates}."
    )
    heads = ["workload", "precision", "limit", "Regard, native, is at", "CTranslate2 is at"]
    return Section("What the machine allows", heads, rows, note)


def targets(report: Record, model: str) -> Section:
    rows = []
    for bar in bars(report):
        if bar.model == model:
            measured = "–" if bar.measured is None else f"{bar.measured:.2f}"
            rows.append([bar.what, f"{bar.sign} {bar.wanted:g}", measured, bar.verdict])
    return Section(
        "Bars", ["what", "bar", "measured", "verdict"], rows, "Medians over the rounds of ratios within one."
    )


def tuning(report: Record, model: str) -> Section:
    rows = []
    for entry in found(report["tuning"], model=model):
        ok = [tried for tried in entry["tried"] if "seconds" in tried]
        slowest = max(tried["seconds"] for tried in ok)
        fastest = min(tried["seconds"] for tried in ok)
        failed = len(entry["tried"]) - len(ok)
        row = [WORKLOADS[entry["workload"]].title, ENGINES[entry["engine"]].precision, str(Way(**entry["chosen"]))]
        rows.append([*row, f"{slowest / fastest:.2f}", str(len(ok)), str(failed or "")])
    heads = ["workload", "precision", "fastest", "slowest ÷ fastest", "ways tried", "failed"]
    return Section("CTranslate2, tuned", heads, rows, "Workers × threads of each, tried on a part of the sentences.")


def failures(report: Record, model: str) -> Section:
    rows = [
        [*name_of(each["engine"]), WORKLOADS[each["workload"]].title, each["error"]]
        for each in found(report["failures"], model=model)
    ]
    return Section("Failed", ["engine", "precision", "workload", "why"], rows)


# The terminal and the page


def show(report: Record) -> None:
    for model in report["models"]:
        for section in sections(report, model):
            grid = Table(title=f"{model.upper()}: {section.title}", caption=section.note or None)
            for head in section.heads:
                grid.add_column(head)
            for row in section.rows:
                grid.add_row(*(cell.replace("**", "") for cell in row))
            console.print(grid)


def write_page(report: Record, path: Path) -> None:
    """The page, and its plots into images/ beside it."""
    parts = [introduction(report)]
    for model in report["models"]:
        parts.append(f"## {model.upper()}\n\n{describe(report, model)}\n")
        images = path.parent / "images"
        images.mkdir(parents=True, exist_ok=True)
        for name, title, drawing in plots(report, model):
            picture = images / f"decoding-{model}-{name}.svg"
            picture.write_text(drawing, encoding="utf-8")
            parts.append(f"![{title}](images/{picture.name})\n")
        for section in sections(report, model):
            note = f"{section.note}\n" if section.note else ""
            parts += [f"### {section.title}\n", note, markdown(section.heads, section.rows)]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")


# What is kept


def kept_tables(report: Record) -> list[Record]:
    """The figures of a run for docs/measured: batches, single sentences, and what the engines cost."""
    processor, made = report["machine"]["processor"], []
    for model in report["models"]:
        title = f"{model.upper()} on {processor}"
        made += [
            records.table(f"{title}, all sentences at once", kept_batches(report, model), "", BATCH_BARS),
            records.table(f"{title}, one sentence at a time", kept_singles(report, model), "", SINGLE_BARS),
            records.table(f"{title}, load and memory", kept_costs(report, model)),
        ]
    return [table for table in made if table["rows"]]


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


def kept_batches(report: Record, model: str) -> list[Record]:
    rows = []
    for engine in engines_of(report, model, BATCHES):
        row: Record = dict(zip(("engine", "precision"), name_of(engine), strict=True))
        for name in BATCHES:
            title = WORKLOADS[name].title
            speeds = by_round(report, sentences_per_second, model=model, engine=engine, workload=name)
            row[f"{title}, sentences/s"] = records.spread(list(speeds.values()), 0)
            row[f"{title} ÷ CTranslate2"] = compared(report, model, engine, name, sentences_per_second)
            value = bleu(report, model, engine, name)
            row[f"{title} BLEU"] = None if value is None else round(value, 2)
        rows.append(filled(row))
    return rows


def kept_singles(report: Record, model: str) -> list[Record]:
    rows = []
    for engine in engines_of(report, model, SINGLES):
        row: Record = dict(zip(("engine", "precision"), name_of(engine), strict=True))
        for name in SINGLES:
            for label, value in (("median", median_milliseconds), ("p95", p95_milliseconds)):
                title = f"{WORKLOADS[name].title}, {label}"
                found = by_round(report, value, model=model, engine=engine, workload=name)
                row[f"{title} ms"] = records.spread(list(found.values()), 1)
                row[f"{title}, CTranslate2 ÷ it"] = compared(report, model, engine, name, value)
        rows.append(filled(row))
    return rows


def kept_costs(report: Record, model: str) -> list[Record]:
    rows = []
    for engine in engines_of(report, model, list(WORKLOADS)):
        loads, most = found(report["loads"], model=model, engine=engine), peak(report, model, engine)
        row: Record = dict(zip(("engine", "precision"), name_of(engine), strict=True))
        row["load s, library included"] = records.spread([load_seconds(load) for load in loads], 2)
        rows.append(filled(row | {"peak MiB": None if most is None else round(most)}))
    return rows


def compared(report: Record, model: str, engine: str, workload: str, value: Value) -> Any:
    if engine == ENGINES[engine].rival:
        return None
    return records.spread(advantage(report, model, engine, workload, value), 2)


def filled(row: Record) -> Record:
    return {key: value for key, value in row.items() if value is not None}


def kept_log(report: Record) -> Record:
    """The runs, without what is long: milliseconds to a hundredth, and no lengths of sentences."""
    log = {name: report[name] for name in ("gemm_gflops", "bandwidth", "tuning", "loads", "same", "failures")}
    log["runs"] = [
        {**run, "latencies": [round(each, 5) for each in run["latencies"]]} if "latencies" in run else run
        for run in report["runs"]
    ]
    return log


def introduction(report: Record) -> str:
    machine, versions = report["machine"], ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    flags = " ".join(machine["flags"])
    return f"""# Decoding speed

Made by `{report["command"]}` on {report["date"][:10]}: one trained model of each size, exported to CTranslate2 and to
Hugging Face, on the {report["sentences"]:,} sentences of Multi30k's test_2016_flickr (lower-cased, tokenised), with
{report["threads"]} threads. The engines take turns within one run, each in a process of its own, all with the same
tokenizer; the machine is noisy: trust ratios within a round.
[benchmarks/README.md](../benchmarks/README.md#decoding-speed-decodingpy) says what is measured and how.

- **Machine:** {machine["processor"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; {flags}.
- **Versions:** {versions}; Python {machine["python"]}.
- **BLEU:** `{report.get("signature", "")}`. The models are trained briefly: they are real, not the best.
- **÷ CTranslate2** is against CTranslate2 at the same precision, in the same round.
"""


def describe(report: Record, model: str) -> str:
    about = report["models"][model]
    shape = about["shape"]
    return (
        f"{shape['encoder_layers']} + {shape['decoder_layers']} layers, width {shape['width']}, feed-forward "
        f"{shape['hidden']:,}, {about['heads']} heads, {shape['vocabulary']:,} subwords, "
        f"{about['parameters']:,} parameters."
    )


def plots(report: Record, model: str) -> list[tuple[str, str, str]]:
    """Sentences a second of batches, and milliseconds of one sentence, as bars."""
    made = []
    for file, names, value, unit in (
        ("batch", BATCHES, sentences_per_second, "sentences a second: longer is better"),
        ("one", SINGLES, median_milliseconds, "milliseconds a sentence, median: shorter is better"),
    ):
        groups = []
        for number, name in enumerate(names):
            values = []
            for engine in engines_of(report, model, [name]):
                rounds = by_round(report, value, model=model, engine=engine, workload=name)
                values.append((", ".join(name_of(engine)), statistics.median(rounds.values())))
            if values:
                groups.append(Bars(WORKLOADS[name].title, values, number))
        if groups:
            title = f"{model.upper()}: {unit.partition(':')[0]}"
            made.append((file, title, draw_bars(title, unit, groups)))
    return made
