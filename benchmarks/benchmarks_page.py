"""Writes docs/benchmarks.md and its plots from the records in docs/measured/ and docs/quality/.

python benchmarks/benchmarks_page.py

The text and the order of the sections are in benchmarks.md beside this file, by the kind of their records. Of tables
with the same title, the page shows the newest; the earlier ones are listed with their records.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import quality_report
from benchmarks.records import QUALITY, ROOT, Record, read, read_all
from benchmarks.tables import markdown_table, to_markdown

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = "measured-"  # how the names of the plots begin


def write_page(page: Path = PAGE) -> None:
    """Writes the page, and its plots into images/ beside it; removes plots that nothing shows any more."""
    text, pictures = make_page()
    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob(f"{PICTURES}*.svg"):
        if old.name not in pictures:
            old.unlink()
    for name, drawing in pictures.items():
        (images / name).write_text(drawing, encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def make_page() -> tuple[str, dict[str, str]]:
    """Returns the text of the page, and its plots by their names."""
    template = Path(__file__).with_name("benchmarks.md").read_text(encoding="utf-8")
    head, *found = re.split(r"^<!-- ([\w-]+) -->\n", template, flags=re.MULTILINE)
    sections = dict(zip(found[::2], found[1::2], strict=True))
    records, pictures = read_all(), dict[str, str]()
    runs = quality_report.grouped(read(path) for path in QUALITY.glob("*.json"))
    parts = [head, sections.pop("quality"), quality_report.summary(runs, as_it_is=True) + "\n"]
    for kind in [*sections, *sorted({record["kind"] for record in records.values()} - sections.keys())]:
        if its := {name: record for name, record in records.items() if record["kind"] == kind}:
            about = sections.get(kind, f"## {kind.capitalize()}\n")
            parts.append(section(about.rstrip() + "\n", its, pictures) + "\n")
    return "".join([*parts, listing(records)]), pictures


def section(about: str, records: Mapping[str, Record], pictures: dict[str, str]) -> str:
    title = about.partition("\n")[0].removeprefix("## ")
    parts, shown, earlier = [about], set[str](), list[str]()
    for name, record in records.items():
        new = [table for table in record["tables"] if table["title"] not in shown]
        shown |= {table["title"] for table in new}
        if not new:
            earlier.append(f"[{record['date'][:10]}](measured/{name}.json)")
            continue
        for number, table in enumerate(new, 1):
            parts += to_markdown(title, table, f"{PICTURES}{name}-{number}.svg", pictures)
        parts += [f"{record['note']}\n"] if "note" in record else []
        parts.append(f"{origin(name, record)}\n")
    parts += [f"Earlier records: {', '.join(earlier)}.\n"] if earlier else []
    return "\n".join(parts)


def origin(name: str, record: Record) -> str:
    """Returns the line below a table: when, where and how its figures were measured."""
    machine = record["machine"]
    cores = [f"{machine['cores']} cores"] if "cores" in machine else []
    versions = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    parts = [record["date"][:10], ", ".join([machine["processor"], *cores]), *([versions] if versions else [])]
    parts += [f"`{record['command']}`"] if record["command"] else ["by hand"]
    kind = "transcribed, without its log" if record.get("transcribed") else "record"
    return f"*{'; '.join(parts)} ([{kind}](measured/{name}.json)).*"


def listing(records: Mapping[str, Record]) -> str:
    rows = [
        [
            each["date"][:10],
            each["kind"],
            f"[{name}](measured/{name}.json)",
            "transcribed" if each.get("transcribed") else "log",
        ]
        for name, each in records.items()
    ]
    return "\n".join(["## Every record\n", markdown_table(["day", "kind", "record", "figures"], rows)])


if __name__ == "__main__":
    write_page()
    print(f"written: {PAGE.relative_to(ROOT)}")
