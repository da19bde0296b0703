"""Writes docs/benchmarks.md and its plots from the records in docs/measured/ and docs/quality/.

python benchmarks/page.py

Of tables with the same title, the newest stands on the page; the earlier ones are named with their records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import report
from benchmarks.plots import Bars, draw_bars
from benchmarks.records import ROOT, Record, Row, read_all

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = "measured-"  # how the names of the plots begin
SECTIONS = {
    "training": "Training speed",
    "decoding": "Decoding speed",
    "serving": "Serving",
    "memory": "Memory and the size of a corpus",
    "plan": "Estimates",
    "bulk": "Very many lines",
    "scaling": "Several processes",
    "gpt": "GPT",
    "writing": "Training speed of a GPT",
    "bert": "BERT",
    "interop": "Imported models",
    "engines": "Exported models",
    "demo": "The demo",
    "look": "The explorer",
    "arrangement": "Small models",
    "quality-again": "Quality, measured again",
    "constraints": "Terms",
    "package": "The package",
}
"""The parts of the page by the kind of their records; a kind that is not here comes last, under its own name."""
ABOUT = {
    "training": """Multi30k en→de, joint BPE of 10,000 tokens, the same ids for every system, real source and target
tokens per second of whole steps. TINY: 4+4 layers, width 128, feed-forward 256, 4 heads, dropout 0.3, about 4,096
target tokens a batch. BASE: 6+6 layers, width 512, feed-forward 2,048, 8 heads, dropout 0.1, about 2,048. "malloc
tuned": glibc was told to keep freed memory, which Regard does by itself. A peak is of the whole process.
""",
    "decoding": """One trained model in every engine, text in, text out, with the same tokenizer: Multi30k's
test_2016_flickr, lower-cased and tokenised. SMALL: 3+3 layers, width 256; BASE: 6+6 layers, width 512; 10,000
subwords. CTranslate2 is tuned for each workload; ÷ is within a round, at the same precision. What
follows from it: [decoding](decoding.md).
""",
    "serving": """`regard bench serve`: HTTP requests of one sentence each, to a server on the same cores as its
clients, beside the same sentences offline, all at once.
""",
    "memory": "Invented sentences; the peak of all processes of `regard train`.\n",
    "plan": "What [`regard plan`](plan.md) says, and what `regard train` then took, in processes of their own.\n",
    "bulk": "[`regard translate --cluster`](scale.md#very-many-lines), the glass model of the package, greedy.\n",
    "scaling": "[`regard train --processes`](distributed.md) on one machine.\n",
    "writing": "Tokens a second of whole steps: random ids, float32, no dropout, nothing compiled.\n",
    "interop": "Published models and vocabularies, against what their own libraries make of them.\n",
    "engines": "The same lines through Regard and through the engine that a model was exported to.\n",
    "demo": "`make demo`: a translator of an invented grammar, English to French, trained from nothing.\n",
    "look": "[`regard look`](look.md) in a real browser without a GPU.\n",
    "arrangement": "Why the presets `tiny` and `small` are [as they are](train.md#when-there-is-little-text).\n",
    "constraints": "What [required terms](howto-terminology.md) cost.\n",
    "package": "What is installed, and how long its tests take.\n",
}
FIXED = ("BLEU", "chrF", "÷", "ratio", "peak GB", "accuracy")  # columns whose numbers have two places


def write_page(page: Path = PAGE) -> None:
    """The page, and its plots into images/ beside it; plots that nothing shows any more are removed."""
    text, pictures = made()
    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob(f"{PICTURES}*.svg"):
        if old.name not in pictures:
            old.unlink()
    for name, drawing in pictures.items():
        (images / name).write_text(drawing, encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def made() -> tuple[str, dict[str, str]]:
    """What the page says, and its plots by their names."""
    records, pictures = read_all(), dict[str, str]()
    kinds = [*SECTIONS, *sorted({record["kind"] for record in records.values()} - SECTIONS.keys())]
    parts = [introduction(), quality()]
    for kind in kinds:
        its = {name: record for name, record in records.items() if record["kind"] == kind}
        if its:
            parts.append(section(kind, its, pictures))
    return "\n".join([*parts, listing(records)]), pictures


def introduction() -> str:
    return """# Benchmarks

Made by `python benchmarks/page.py` from the records of runs in `docs/measured/`: do not edit it, run a benchmark. The
programs in `benchmarks/` keep their figures there, with command, day, machine and versions;
[how speed is measured](../benchmarks/README.md) says what each of them does. Machines differ and are noisy: trust
ratios within a table, not absolute values, and no difference under 10 %. **Transcribed** figures are of runs whose logs
are not kept here: they were copied from earlier versions of these pages, or from what somebody else reported.
"""


def quality() -> str:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "docs" / "quality").glob("*.json")]
    about = """Settings in `recipes/`, scored with sacrebleu; **published** is Transformer-Tiny (Wu et al., 2021).
Means are over at least three seeds, and only these are compared with it. Signatures, every run and its course, and what
other settings gave are in [quality](quality.md), from the records in `docs/quality/`.
"""
    return "\n".join(["## Quality\n", about, report.summary(report.grouped(records), as_it_is=True)])


def section(kind: str, records: Mapping[str, Record], pictures: dict[str, str]) -> str:
    title = SECTIONS.get(kind, kind.capitalize())
    parts, shown, earlier = [f"## {title}\n", *([ABOUT[kind]] if kind in ABOUT else [])], set[str](), list[str]()
    for name, record in records.items():
        new = [table for table in record["tables"] if table["title"] not in shown]
        shown |= {table["title"] for table in new}
        if not new:
            earlier.append(f"[{record['date'][:10]}](measured/{name}.json)")
            continue
        for number, table in enumerate(new, 1):
            parts += [f"### {table['title']}\n"] if table["title"] else []
            if "bars" in table:
                picture = f"{PICTURES}{name}-{number}.svg"
                pictures[picture] = bars(title, table)
                parts.append(f"![{title}, {table['title']}: {table['bars']['unit']}](images/{picture})\n")
            parts += [report.table(*columns(table["rows"]))] if table["rows"] else []
            parts += [f"{table['note']}\n"] if "note" in table else []
        parts += [f"{record['note']}\n"] if "note" in record else []
        parts.append(f"{origin(name, record)}\n")
    parts += [f"Earlier: {', '.join(earlier)}.\n"] if earlier else []
    return "\n".join(parts)


def columns(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """The headings of a table, and its cells as text."""
    listed = list(rows)
    heads = list(dict.fromkeys(key for row in listed for key in row))
    return heads, [[cell(head, row.get(head)) for head in heads] for row in listed]


def cell(head: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case [middle, least, most]:
            return f"{cell(head, middle)} ({cell(head, least)} to {cell(head, most)})"
        case list():
            return ", ".join(cell(head, each) for each in value)
        case int():
            return f"{value:,}"
        case float() if any(word in head for word in FIXED):
            return f"{value:.2f}"
        case float():
            return f"{value:.0e}" if 0 < abs(value) < 1e-4 and float(f"{value:.0e}") == value else f"{value:,}"
    return str(value)


def bars(title: str, table: Record) -> str:
    """The plot of one or more columns, a group of bars for each; Regard's stand out."""
    about = table["bars"]
    groups = []
    for number, head in enumerate(about["values"]):
        found = [
            (", ".join(str(row[name]) for name in about["names"] if row.get(name)), row.get(head))
            for row in table["rows"]
        ]
        values = [
            (name, float(value[0] if isinstance(value, list) else value)) for name, value in found if value is not None
        ]
        ours = "Regard" if any(name.startswith("Regard") for name, _ in values) else ""
        groups.append(Bars(head, values, number, ours))
    return draw_bars(f"{title}: {table['title']}", about["unit"], [group for group in groups if group.values])


def origin(name: str, record: Record) -> str:
    """Where the figures come from, in one line below them."""
    versions = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    parts = [record["date"][:10], machine(record), *([versions] if versions else [])]
    parts += [f"`{record['command']}`"] if record["command"] else ["by hand"]
    kept = "transcribed, without its log" if record.get("transcribed") else "record"
    return f"*{'; '.join(parts)} ([{kept}](measured/{name}.json)).*"


def machine(record: Record) -> str:
    about = record["machine"]
    return ", ".join([about["processor"], *([f"{about['cores']} cores"] if "cores" in about else [])])


def listing(records: Mapping[str, Record]) -> str:
    rows = [
        [
            record["date"][:10],
            record["kind"],
            f"[{name}](measured/{name}.json)",
            "transcribed" if record.get("transcribed") else "log",
        ]
        for name, record in records.items()
    ]
    return "\n".join(["## Every record\n", report.table(["day", "kind", "record", "figures"], rows)])


if __name__ == "__main__":
    write_page()
    print(f"written: {PAGE.relative_to(ROOT)}")
