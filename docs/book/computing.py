"""Expands templates of pages, so that quoted code and computed numbers are never out of date.

A template can have
    {{ expression }}                in its text, which is replaced by its value;
    a block that begins ```python run, which is shown and run; its output, or its last value, is shown below.
All expressions and blocks of a template share one namespace. An error in one of them stops the rendering.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any

PART = re.compile(r"^```python run\n(?P<block>.*?)^```$|\{\{(?P<expression>.+?)\}\}", re.MULTILINE | re.DOTALL)


class BookError(Exception):
    """An expression or block of a page fails, or a claim no longer holds."""


def expand(markdown: str, names: dict[str, Any], page: str) -> str:
    """Returns the page of a template with its values and outputs; `names` is the namespace, to which blocks add."""

    def replaced(match: re.Match[str]) -> str:
        line = markdown[: match.start()].count("\n") + 1
        try:
            if match["block"] is not None:
                return f"```python\n{match['block']}```\n\n{answer(run(match['block'], names))}"
            return str(eval(match["expression"].strip(), names))  # noqa: S307 - the page is part of the source
        except Exception as error:
            raise BookError(f"{page}:{line}: {type(error).__name__}: {error}") from error

    return PART.sub(replaced, markdown)


def run(code: str, names: dict[str, Any]) -> str:
    """Returns the output of a block, and its last value if it ends in an expression, as in a notebook."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "page", "exec"), names)  # noqa: S102 - the page is part of the source
        value = None if last is None else eval(compile(ast.Expression(last.value), "page", "eval"), names)  # type: ignore[attr-defined]  # noqa: S307
        if value is not None:
            print(value if isinstance(value, str) else repr(value))
    return printed.getvalue().rstrip()


def answer(printed: str) -> str:
    return f"``` {{.text .answer}}\n{printed}\n```\n" if printed else ""


def claim(holds: object) -> str:
    """Stops the rendering if the statement beside it no longer holds."""
    if not holds:
        raise BookError("the statement here no longer holds: look at the numbers and rewrite it")
    return ""
