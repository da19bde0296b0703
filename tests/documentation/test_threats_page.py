"""The page of threats promises nothing without a test, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.documentation.pages import ROOT

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
OPEN = "still open"


def page() -> str:
    return (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")


def rows(text: str) -> list[str]:
    """Returns the rows of the tables in a text, without their heads."""
    tables = re.findall(r"^\|.+\|\n\|[-|]+\|\n((?:\|.+\|\n)+)", text, re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


def has_test(path: Path, name: str) -> bool:
    if not path.is_file():
        return False
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, functions) and node.name == name for node in body)


def test_every_test_that_is_named_exists() -> None:
    named = TEST.findall(page())
    assert [f"{path}::{name}" for path, name in named if not has_test(ROOT / path, name)] == []
    assert len(named) > 40
    assert not has_test(ROOT / "tests" / "test_settings.py", "test_that_nobody_wrote")
    assert not has_test(ROOT / "tests" / "no_such_file.py", "test_every_test_that_is_named_exists")


@pytest.mark.parametrize("who", ["A client", "The author of a file", "The author of a model", "An unlucky operator"])
def test_every_promise_has_a_test(who: str) -> None:
    section = page().partition(f"\n## {who}\n")[2].partition("\n## ")[0]
    promises = rows(section)
    assert len(promises) > 5
    assert [row for row in promises if not TEST.search(row)] == []
    assert "**Not promised:**" in section


def test_what_was_found_has_a_test_or_is_open() -> None:
    findings = rows(page().partition("\n## Found")[2].partition("\n## ")[0])
    assert len(findings) > 9
    assert [row for row in findings if not TEST.search(row) and OPEN not in row] == []


def test_whoever_finds_a_weakness_finds_the_pages() -> None:
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "(docs/threats.md)" in security
    for name in ("README.md", "README.zh-CN.md"):
        assert "(SECURITY.md)" in (ROOT / name).read_text(encoding="utf-8"), name
