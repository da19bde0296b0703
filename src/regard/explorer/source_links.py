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

from regard.explorer.request_checks import MissingError
from regard.explorer.traced_pass import Pass

SOURCE = Path(__file__).parents[2]


class SourceLinks:
    """The file and line behind each tensor of the runs so far."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[str, int]] = {}

    def add(self, run: Pass, functions: dict[str, Callable[..., object]]) -> None:
        """Adds the lines of a run, and those of the functions that derive further tensors from it."""
        self.lines |= run.lines
        for name, function in functions.items():
            self.lines[name] = inspect.getfile(function), inspect.getsourcelines(function)[1]

    def find(self, name: str) -> dict[str, Any]:
        """Returns the line that made the tensor of this name, and the function around it."""
        if name not in self.lines:
            raise MissingError(f"name: no line is known for a tensor named {name[:100]!r}; run a text that makes it")
        file, line = self.lines[name]
        return describe_line(Path(file), line)


def describe_line(path: Path, line: int) -> dict[str, Any]:
    """Returns a line of code, its place, and the innermost function or class around it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    around = [node for node in definitions(path) if node.lineno <= line <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    return {
        "file": path.relative_to(SOURCE).as_posix(),
        "line": line,
        "code": lines[line - 1].strip(),
        "snippet": textwrap.dedent("\n".join(lines[inner.lineno - 1 : inner.end_lineno])),
        "start": inner.lineno,
    }


@cache
def definitions(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    """Returns the functions and classes of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
