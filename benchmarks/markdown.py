"""Markdown of the pages that benchmarks write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def plain(text: str) -> str:
    """Escapes a text so that Markdown shows it as it is."""
    return re.sub(r"[\\`*_\[\]|~]", lambda found: f"&#{ord(found[0])};", escape(text, quote=False))
