"""Builds the navigation of the site from navigation.toml; pages that it does not list come last in How-to."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SECTIONS: dict[str, list[str]] = LISTED["sections"]
ELSEWHERE: dict[str, str] = LISTED["elsewhere"]


def pages_in_docs() -> list[str]:
    """Returns every page below docs/, by its path there."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def navigation(pages: Iterable[str], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the tree that MkDocs takes: sections, and in each its pages under their titles."""
    left = set(pages) - {"index.md"}
    placed: dict[str, list[str]] = {}
    for section, patterns in SECTIONS.items():
        placed[section] = [page for pattern in patterns for page in sorted(left) if fnmatch(page, pattern)]
        left -= set(placed[section])
    placed["Project"] = [page for page in ELSEWHERE if page in left and not page.startswith("zh/")]
    placed["简体中文"] = sorted((page for page in left if page.startswith("zh/")), key=chinese_order)
    placed["How-to"] += sorted(left - set(placed["Project"]) - set(placed["简体中文"]))
    sections = {name: [{titles[page]: page} for page in pages] for name, pages in placed.items() if pages}
    return [{"Regard": "index.md"}, *({name: pages} for name, pages in sections.items())]


def chinese_order(page: str) -> tuple[int, str]:
    """Sorts Chinese pages in the order of their English twins."""
    english = ["readme.md", *(path for patterns in SECTIONS.values() for path in patterns)]
    twin = page.removeprefix("zh/")
    return (english.index(twin) if twin in english else len(english), page)


def title(markdown: str, otherwise: str) -> str:
    """Returns the first heading of a page, without its marks."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else otherwise
