"""Keeps the figures of each claim in docs/claims/, with the command, the machine and the versions that gave them."""

from __future__ import annotations

import datetime
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine

Figures = dict[str, Any]


def command(name: str, seed: int) -> str:
    return f"python benchmarks/claims.py --only {name} --seed {seed}"


def write_record(folder: Path, name: str, seed: int, seconds: float, figures: Figures) -> None:
    record = {
        "claim": name,
        "command": command(name, seed),
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),  # of one processor
        "machine": describe_machine(),
        "load": round(os.getloadavg()[0], 1),  # of other programs, which share the processor's caches
        "versions": {library: version(library) for library in ("regard", "torch", "numpy")},
        "figures": figures,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=False, indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read_record(folder: Path, name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return record
