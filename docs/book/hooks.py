"""What MkDocs calls while it builds the site: see mkdocs.yml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.book.computing import BookError, expand  # noqa: E402
from docs.book.links import for_site, foreign_origins  # noqa: E402
from docs.book.navigation import BROUGHT, DOCS, navigation, title, written  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

HOMES = {
    **{(DOCS / page).resolve(): page for page in written()},
    **{ROOT / home: page for page, home in BROUGHT.items()},
}
FILES = {page: home for home, page in HOMES.items()}


def on_config(config: Any) -> Any:
    """The navigation, from the pages that there are."""
    titles = {page: title(home.read_text(encoding="utf-8"), page) for page, home in FILES.items()}
    titles |= {"readme.md": "Regard at a glance", "benchmarks-readme.md": "How speed is measured"}
    config.nav = navigation(FILES, titles)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie outside of docs/."""
    for page, home in BROUGHT.items():
        files.append(File.generated(config, page, content=(ROOT / home).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site needs them; then all that the page quotes and computes."""
    path = page.file.src_uri
    markdown = for_site(markdown, FILES[path], path, HOMES, ROOT)
    if not page.meta.get("computed"):
        return markdown
    from docs.book import lesson

    try:
        return expand(markdown, dict(vars(lesson)), path)
    except BookError as error:
        raise PluginError(str(error)) from error


def on_post_build(config: Any) -> None:
    """The pages ask no other host for anything."""
    found = foreign_origins(Path(config.site_dir))
    if found:
        raise PluginError("fetched from another host: " + "; ".join(found[:5]))
