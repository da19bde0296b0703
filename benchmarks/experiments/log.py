"""What an experiment has found, as it is kept: figures, and what they were made with."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.training import describe_machine

Figures = dict[str, Any]


@dataclass(frozen=True)
class Wording:
    """A claim in one language."""

    title: str
    said: str  # the claim, in a sentence
    tell: Callable[[Figures], str]  # what was found, in Markdown


@dataclass(frozen=True)
class Claim:
    """What is said of the Transformer, how it is measured, and how the figures are shown."""

    name: str
    measure: Callable[[int], Figures]
    draw: Callable[[Figures], dict[str, str]]  # pictures by the end of their name, as SVG
    english: Wording
    chinese: Wording


def command(name: str, seed: int) -> str:
    return f"python benchmarks/claims.py --only {name} --seed {seed}"


def write_log(folder: Path, name: str, seed: int, seconds: float, figures: Figures) -> None:
    """Keeps the figures of one claim."""
    record = {
        "claim": name,
        "command": command(name, seed),
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),  # of one processor
        "machine": describe_machine(),
        "load": round(os.getloadavg()[0], 1),  # what else ran, and the processor's caches were shared with
        "versions": {library: version(library) for library in ("regard", "torch", "numpy")},
        "figures": figures,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=False, indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read_log(folder: Path, name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return record
