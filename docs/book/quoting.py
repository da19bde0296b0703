"""Quotes the source: a page names a function or class and shows its code."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def quote(name: str) -> str:
    """Returns the code of an object by its dotted name, as a block that begins with the path of its file."""
    quoted = find(name)
    file = Path(inspect.getfile(quoted)).resolve().relative_to(ROOT).as_posix()
    return f"```python\n# {file}\n{textwrap.dedent(inspect.getsource(quoted)).rstrip()}\n```"


def find(name: str) -> Any:
    """Returns the function, class or method with a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise LookupError(f"{name} does not exist")
