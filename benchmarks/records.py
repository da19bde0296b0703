"""Records of runs in docs/measured/, a JSON file a run; `benchmarks_page.py` makes docs/benchmarks.md of them.

A record has `kind`, `date`, `command`, `machine`, `versions`, `settings`, `tables`, perhaps a `note`, and the `log`
that its tables were computed from. `transcribed` means that the log is lost, and the figures were copied from a page.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.tables import Table, show

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MEASURED = DOCS / "measured"
QUALITY = DOCS / "quality"  # the records of benchmarks/quality.py
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")

Record = dict[str, Any]


def publish(store: bool, kind: str, tables: Sequence[Table], **about: Any) -> None:
    """Prints the tables of a run and, if wanted, stores them; `about` is what `keep` takes."""
    show(tables)
    if store:
        keep(kind, tables, **about)


def keep(
    kind: str,
    tables: Sequence[Table],
    *,
    versions: Mapping[str, str] | None = None,
    machine: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    log: Any = None,
    command: str = "",
) -> Path:
    """Writes the record of a run, named by kind and day, and updates the page of benchmarks."""
    if "PYTEST_CURRENT_TEST" in os.environ and MEASURED.is_relative_to(DOCS):  # of this process or its parent
        raise RuntimeError("a test must not write to docs/: run it with --no-keep")
    from benchmarks.benchmarks_page import write_page

    record: Record = {
        "kind": kind,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command or command_line(),
        "machine": {key: value for key, value in (machine or describe_machine()).items() if key != "system"},
        "versions": {"regard": importlib.metadata.version("regard"), **(versions or {})},
        "settings": dict(settings or {}),
        "tables": list(tables),
    }
    record |= {"log": log} if log is not None else {}
    path = free_path(f"{kind}-{record['date'][:10]}", record["command"])
    write(path, record)
    write_page()
    print(f"stored in {path.relative_to(ROOT)}; docs/benchmarks.md is updated")
    return path


def command_line(words: Sequence[str] | None = None) -> str:
    """Returns the command as a reader can type it, without folders of this machine."""
    script, *rest = words or sys.argv
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *map(without_folder, rest)])


def without_folder(word: str) -> str:
    name, sign, value = word.rpartition("=")
    return f"{name}{sign}{Path(value).name}" if value.startswith(("/", "~", "..")) else word


def free_path(stem: str, command: str) -> Path:
    """Returns the file of a command on a day: the same command replaces its record, another one gets a new number."""
    for number in range(1, 1000):
        path = MEASURED / f"{stem}{f'-{number}' if number > 1 else ''}.json"
        if not path.exists() or read(path)["command"] == command:
            return path
    raise FileExistsError(f"{MEASURED / stem}: a thousand records of one day")


def write(path: Path, record: Record) -> None:
    """Writes a row of a table a line, so that git shows changes; the log is as short as it can be."""
    fields = {name: tables_json(value) if name == "tables" else compact(value) for name, value in record.items()}
    lines = [f" {json.dumps(name)}: {text}" for name, text in fields.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def tables_json(tables: Sequence[Table]) -> str:
    written = []
    for table in tables:
        rows = ",\n".join(f"    {compact(row)}" for row in table["rows"])
        rest = "".join(f",\n   {compact(key)}: {compact(table[key])}" for key in table if key not in ("title", "rows"))
        written.append(f'  {{\n   "title": {compact(table["title"])},\n   "rows": [\n{rows}\n   ]{rest}\n  }}')
    return "[\n" + ",\n".join(written) + "\n ]"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read(path: Path) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def read_all() -> dict[str, Record]:
    """Returns every record by its name, the newest first."""
    found = {path.stem: read(path) for path in sorted(MEASURED.glob("*.json"), key=lambda path: path.stem)}
    return dict(sorted(found.items(), key=lambda each: str(each[1]["date"]), reverse=True))


def numbers(name: str) -> list[float]:
    """Returns every number in a record, those in its words included."""
    for folder in (MEASURED, QUALITY):
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
            yield from leaves([*value, *value.values()])
        case list():
            for inner in value:
                yield from leaves(inner)
