"""The line of this toolkit that made a tensor, found in the code that runs and not in a copy of it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

import regard.explorer.traced_pass
from regard.explorer.anatomy import Anatomy
from regard.explorer.request_checks import MissingError

PACKAGE = Path(inspect.getfile(regard.explorer.traced_pass)).parents[2]


def find_source(anatomy: Anatomy, name: str, derived: Callable[..., object] | None = None) -> dict[str, Any]:
    """Where the tensor of this name is made; `derived` is the function that computes it, if it was not seen."""
    if derived is not None:
        return describe(Path(inspect.getfile(derived)), span(derived).start)
    if name in ("label.logits", "vector"):
        path = Path(inspect.getfile(regard.explorer.traced_pass))
        return describe(path, lines_with(path, f'trace["{name}"]')[0])
    place, _, leaf = name.rpartition(".")
    try:
        module = anatomy.model.get_submodule(place)
    except AttributeError:
        raise unknown(name) from None
    path, line = find_line(module, leaf, name)
    return describe(path, line)


def find_line(module: nn.Module, leaf: str, name: str) -> tuple[Path, int]:
    """The file and the line on which the class of this module, or else a function beside it, sees `leaf`."""
    path = Path(inspect.getfile(type(module)))
    if not path.is_relative_to(PACKAGE / "regard"):
        raise unknown(name)
    hits = lines_with(path, f'see("{leaf}"')
    made: Callable[..., object] = type(module)
    own = [line for line in hits if line in span(made)]
    if not hits:
        raise unknown(name)
    if not own:
        return path, hits[0]
    post = getattr(module, "pre", True) is False  # a residual sum sees the same in two orders, pre-norm's first
    return path, own[-1 if post else 0]


def unknown(name: str) -> MissingError:
    return MissingError(f"name: no line of this model makes a tensor named {name[:100]!r}")


def lines_with(path: Path, text: str) -> list[int]:
    """The numbers of the lines in which a text stands."""
    pattern = re.compile(rf"(?<!\w){re.escape(text)}")
    return [number for number, line in enumerate(read_lines(path), 1) if pattern.search(line)]


@cache
def definitions(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a file."""
    tree = ast.parse("\n".join(read_lines(path)))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]


@cache
def span(made: Callable[..., object]) -> range:
    """The lines of a class or function."""
    code, first = inspect.getsourcelines(made)
    return range(first, first + len(code))


@cache
def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def describe(path: Path, line: int) -> dict[str, Any]:
    """The line, and the function that it stands in."""
    lines = read_lines(path)
    around = [node for node in definitions(path) if node.lineno <= line <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    snippet = textwrap.dedent("\n".join(lines[inner.lineno - 1 : inner.end_lineno]))
    return {
        "file": path.relative_to(PACKAGE).as_posix(),
        "line": line,
        "code": lines[line - 1].strip(),
        "snippet": snippet,
        "start": inner.lineno,
    }
