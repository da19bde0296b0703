"""Links each tensor to the line of source code that made it.

The links come from the runs themselves: `observe` records where each value was seen, so they hold for the code that
runs, in whichever order a model runs it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2]

SourcePlace = tuple[str, int]
"""A file and the number of a line in it."""


def place_of(function: Callable[..., object]) -> SourcePlace:
    """Returns the place of a function's definition."""
    return inspect.getfile(function), inspect.getsourcelines(function)[1]


@cache
def describe_line(file: str, line: int) -> dict[str, Any]:
    """Returns a line of code, its place, and the innermost function or class around it."""
    text = Path(file).read_text(encoding="utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    lines = text.splitlines()
    return {
        "file": Path(file).relative_to(SOURCE).as_posix(),
        "line": line,
        "code": lines[line - 1].strip(),
        "snippet": textwrap.dedent("\n".join(lines[inner.lineno - 1 : inner.end_lineno])),
        "start": inner.lineno,
    }
