"""Which page stands where. A page that nobody has placed stands under How-to, so that none is ever lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

SECTIONS: dict[str, list[str]] = {
    "Tutorials": [
        "tutorials/first-translator.md",
        "tutorials/translation-memory.md",
        "tutorials/gpt.md",
        "tutorials/classifier.md",
        "tutorials/look-inside.md",
    ],
    "How-to": [
        "tour.md",
        "train.md",
        "translate.md",
        "howto-*.md",
        "check.md",
        "write.md",
        "read.md",
        "evaluate.md",
        "serve.md",
    ],
    "Reference": [
        "commands.md",
        "settings.md",
        "formats.md",
        "model-folder.md",
        "http.md",
        "errors.md",
        "import-export.md",
        "terms.md",
    ],
    "Explanation": [
        "transformer.md",
        "claims.md",
        "architecture.md",
        "decoding.md",
        "protect.md",
        "native.md",
        "engines.md",
        "compared.md",
        "look-compared.md",
        "benchmarks.md",
        "quality.md",
        "mutants.md",
        "log.md",
    ],
}
"""In this order; a pattern stands for the pages that fit it. The rest comes after the last page of How-to."""

BROUGHT = {
    "readme.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks-readme.md": "benchmarks/README.md",
    "recipes.md": "recipes/README.md",
    "zh/readme.md": "README.zh-CN.md",
}
"""Pages of the site that lie elsewhere in the repository."""


def written() -> list[str]:
    """Every page below docs/, by its path there."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def navigation(pages: Iterable[str], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tree that MkDocs takes: sections, and in each its pages under their titles."""
    left = set(pages) - {"index.md"}
    placed: dict[str, list[str]] = {}
    for section, patterns in SECTIONS.items():
        placed[section] = [page for pattern in patterns for page in sorted(left) if fnmatch(page, pattern)]
        left -= set(placed[section])
    placed["Project"] = [page for page in BROUGHT if page in left and not page.startswith("zh/")]
    placed["简体中文"] = sorted((page for page in left if page.startswith("zh/")), key=chinese_order)
    placed["How-to"] += sorted(left - set(placed["Project"]) - set(placed["简体中文"]))
    sections = {name: [{titles[page]: page} for page in pages] for name, pages in placed.items() if pages}
    return [{"Regard": "index.md"}, *({name: pages} for name, pages in sections.items())]


def chinese_order(page: str) -> tuple[int, str]:
    """Chinese pages stand in the order of their English twins."""
    english = [path for patterns in SECTIONS.values() for path in patterns]
    twin = page.removeprefix("zh/")
    return (english.index(twin) if twin in english else -1 if twin == "readme.md" else len(english), page)


def title(markdown: str, otherwise: str) -> str:
    """The first heading of a page, without its marks."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else otherwise
