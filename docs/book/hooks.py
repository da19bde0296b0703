"""Hooks that MkDocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.book.links import for_site, foreign_origins  # noqa: E402
from docs.book.navigation import DOCS, ELSEWHERE, navigation, pages_in_docs, title  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

FILES = {page: (DOCS / page).resolve() for page in pages_in_docs()}
FILES |= {page: ROOT / home for page, home in ELSEWHERE.items()}
HOMES = {home: page for page, home in FILES.items()}
LIVE = """
<iframe src="live/index.html" title="A Transformer at work" loading="lazy" class="live"></iframe>

<a href="live/index.html">Open it in a page of its own</a>: type a sentence, look at every number, take a lesson.
"""
"""The front page's models, which `make site` publishes beside the documentation."""


def on_config(config: Any) -> Any:
    """Sets the navigation."""
    titles = {page: title(home.read_text(encoding="utf-8"), page) for page, home in FILES.items()}
    titles |= {"readme.md": "Regard at a glance", "benchmarks-readme.md": "How speed is measured"}
    config.nav = navigation(FILES, titles)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages whose files are outside of docs/."""
    for page, home in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / home).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Changes links as the site needs them."""
    path = page.file.src_uri
    if path == "index.md" and os.environ.get("REGARD_LIVE") == "1":
        heading, _newline, rest = markdown.partition("\n")
        markdown = f"{heading}\n{LIVE}\n{rest}"
    return for_site(markdown, FILES[path], path, HOMES, ROOT)


def on_post_build(config: Any) -> None:
    """Makes sure that the pages request nothing from another host."""
    found = foreign_origins(Path(config.site_dir))
    if found:
        raise PluginError("pages request files from another host: " + "; ".join(found[:5]))
