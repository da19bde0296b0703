"""What benchmarks found, kept in git: docs/measured/, a JSON file a run. `page.py` makes docs/benchmarks.md of them.

A record has `kind`, `date`, `command`, `machine`, `versions`, `settings`, `tables`, perhaps a `note`, and the `log`
that its tables were computed from. A row of a table maps columns to values: a text, a number, or, of several rounds,
the median, the least and the greatest. `transcribed`: the log is lost, and the figures were copied from a page.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MEASURED = DOCS / "measured"
OTHER_RECORDS = (ROOT / "docs" / "quality",)  # as benchmarks/quality.py keeps them
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")

Record = dict[str, Any]
Row = dict[str, Any]


def add_keep(parser: argparse.ArgumentParser) -> None:
    """The flag that every benchmark has."""
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the figures in docs/measured/ and write docs/benchmarks.md anew; default: yes",
    )


def table(title: str, rows: Sequence[Row], note: str = "", bars: Mapping[str, Any] | None = None) -> Record:
    """Figures under a title; `bars` says what is drawn: the columns `names` and `values`, and the `unit`."""
    made: Record = {"title": title, "rows": list(rows)}
    return made | ({"note": note} if note else {}) | ({"bars": dict(bars)} if bars else {})


def spread(values: Sequence[float], places: int) -> float | list[float] | None:
    """The median, and of several values the least and the greatest with it."""
    if not values:
        return None
    found = [rounded(value, places) for value in (statistics.median(values), min(values), max(values))]
    return found[0] if len(values) == 1 else found


def rounded(value: float, places: int) -> float:
    return round(value, places) if places else round(value)


def keep(
    kind: str,
    tables: Sequence[Record],
    *,
    versions: Mapping[str, str] | None = None,
    machine: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    note: str = "",
    log: Any = None,
    command: str = "",
) -> Path:
    """Keeps the figures of a run and writes the page anew; the file is named by kind and day."""
    if "PYTEST_CURRENT_TEST" in os.environ and MEASURED.is_relative_to(DOCS):  # of this process or who started it
        raise RuntimeError("a test has measured nothing that may stand in docs/: run it with --no-keep")
    from benchmarks.page import write_page
    from benchmarks.training import describe_machine

    record: Record = {
        "kind": kind,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command or typed(),
        "machine": {key: value for key, value in (machine or describe_machine()).items() if key != "system"},
        "versions": {"regard": importlib.metadata.version("regard"), **(versions or {})},
        "settings": dict(settings or {}),
        "tables": list(tables),
    }
    record |= ({"note": note} if note else {}) | ({"log": log} if log is not None else {})
    path = free_name(f"{kind}-{record['date'][:10]}", record["command"])
    write(path, record)
    write_page()
    print(f"kept in {path.relative_to(ROOT)}; docs/benchmarks.md is written anew")
    return path


def typed(words: Sequence[str] | None = None) -> str:
    """The command as a reader can type it: no folder of this machine is named."""
    script, *rest = words or sys.argv
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *map(without_folder, rest)])


def without_folder(word: str) -> str:
    name, sign, value = word.rpartition("=")
    return f"{name}{sign}{Path(value).name}" if value.startswith(("/", "~", "..")) else word


def free_name(stem: str, command: str) -> Path:
    """The same command on the same day has the same file; another one has another."""
    for number in range(1, 1000):
        path = MEASURED / f"{stem}{f'-{number}' if number > 1 else ''}.json"
        if not path.exists() or read(path)["command"] == command:
            return path
    raise FileExistsError(f"{MEASURED / stem}: a thousand records of one day")


def write(path: Path, record: Record) -> None:
    """A row of a table a line, so that a change can be read in git; the log is as short as it can be."""
    lines = [f" {json.dumps(name)}: {shown(name, value)}" for name, value in record.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def shown(name: str, value: Any) -> str:
    if name != "tables":
        return json.dumps(value, ensure_ascii=False)
    made = []
    for each in value:
        rest = "".join(
            f",\n   {json.dumps(key)}: {json.dumps(what, ensure_ascii=False)}"
            for key, what in each.items()
            if key not in ("title", "rows")
        )
        rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in each["rows"])
        title = json.dumps(each["title"], ensure_ascii=False)
        made.append(f'  {{\n   "title": {title},\n   "rows": [\n{rows}\n   ]{rest}\n  }}')
    return "[\n" + ",\n".join(made) + "\n ]"


def read(path: Path) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def read_all() -> dict[str, Record]:
    """Every record by its name, the newest first."""
    found = {path.stem: read(path) for path in sorted(MEASURED.glob("*.json"), key=lambda path: path.stem)}
    return dict(sorted(found.items(), key=lambda each: str(each[1]["date"]), reverse=True))


def numbers(name: str) -> list[float]:
    """Every number in a record, those in its words included."""
    for folder in (MEASURED, *OTHER_RECORDS):
        if (path := folder / f"{name}.json").is_file():
            return list(leaves({key: value for key, value in read(path).items() if key != "log"}))
    raise FileNotFoundError(f"there is no record {name} in docs/measured or docs/quality")


def leaves(value: Any) -> Iterator[float]:
    match value:
        case bool() | None:
            return
        case int() | float():
            yield float(value)
        case str():
            yield from (float(found.replace(",", "")) for found in NUMBER.findall(value))
        case dict():
            for key, inner in value.items():
                yield from leaves(key)
                yield from leaves(inner)
        case list():
            for inner in value:
                yield from leaves(inner)
