"""Quotes the source: a page names a function or class and shows its code."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def quote(name: str) -> str:
    """Returns the code of an object by its dotted name, as a block with its file and lines."""
    made = find(name)
    lines, first = inspect.getsourcelines(made)
    file = Path(inspect.getfile(made)).resolve().relative_to(ROOT).as_posix()
    code = textwrap.dedent("".join(lines)).rstrip()
    return f'```python title="{file}" linenums="{first}"\n{code}\n```'


def find(name: str) -> Any:
    """Returns the function, class or method with a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise LookupError(f"{name} does not exist")
