"""What happened to others cannot happen here: a test for each published advisory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.museum.exhibits import EXHIBITS, Exhibit, page

PAGE = Path(__file__).parents[2] / "docs" / "museum.md"


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=[exhibit.id for exhibit in EXHIBITS])
def test_it_cannot_happen_here(exhibit: Exhibit, tmp_path: Path) -> None:
    exhibit.check(tmp_path)


def test_the_page_lists_all_exhibits() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew with python -m tests.museum"


def test_each_exhibit_is_listed_once() -> None:
    ids = [exhibit.id for exhibit in EXHIBITS]
    assert len(set(ids)) == len(ids) >= 40
