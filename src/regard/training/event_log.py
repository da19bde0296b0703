"""The course of training on disk: an event a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from regard.atomic_files import write_text
from regard.training.events import Event


def append(path: Path, event: Event) -> None:
    """Adds an event."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": type(event).__name__, **asdict(event)}, ensure_ascii=False) + "\n")


def trim(path: Path, step: int) -> None:
    """Takes back what was logged after this step, from which the run goes on."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a line that a kill cut off
        if event["step"] <= step and event["event"] != "Finished":
            kept.append(line + "\n")
    write_text(path, "".join(kept))
