"""Changes links between pages of the repository to links between pages of the site, and finds foreign addresses."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from pathlib import Path

LINK = re.compile(r"`[^`\n]+`|(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r"(!\[[^\]]*\])\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```[^\S\n]*$)", re.MULTILINE | re.DOTALL)


def for_site(markdown: str, home: Path, page: str, homes: Mapping[Path, str], root: Path) -> str:
    """Returns a page, whose file is `home`, with its links as the site's `page` needs them.

    `homes` has all pages of the site by their files. A link to another file of the repository becomes its text; a
    broken link stays, so that MkDocs reports it.
    """

    def replaced(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if text is None or "://" in target or target.startswith("mailto:"):
            return match[0]
        file = (home.parent / target).resolve()
        if file in homes:
            return f"[{text}]({relative(homes[file], page)}{anchor})"
        inside = file.is_relative_to(root / "docs")
        return text if file.exists() and not inside else match[0]

    def pictured(match: re.Match[str]) -> str:
        file = (home.parent / match[2]).resolve()
        inside = file.is_relative_to(root / "docs") and file.exists()
        return f"{match[1]}({relative(file.relative_to(root / 'docs').as_posix(), page)})" if inside else match[0]

    pieces = FENCED.split(markdown)
    pieces[::2] = [IMAGE.sub(pictured, LINK.sub(replaced, piece)) for piece in pieces[::2]]
    return "".join(pieces)


def relative(target: str, page: str) -> str:
    """Returns the relative address of a page, seen from another."""
    return os.path.relpath(target, os.path.dirname(page)).replace(os.sep, "/")  # noqa: PTH120


def foreign_origins(site: Path) -> list[str]:
    """Lists what the built pages would request from another host: scripts, styles, pictures, fonts, frames."""
    loads = re.compile(
        r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*["']?(https?:)?//[^\s"'>]+"""
        r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*?\bhref\s*=\s*["']?(https?:)?//[^\s"'>]+"""
        r"""|url\(\s*["']?(https?:)?//[^)]+\)|@import\s+["'](https?:)?//[^"']+""",
        re.IGNORECASE,
    )
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(site)}: {match[0][:120]}" for match in loads.finditer(text)]
            if path.suffix == ".html" and "Content-Security-Policy" not in text:
                found.append(f"{path.relative_to(site)}: lacks the rule that forbids its scripts other hosts")
    return found
