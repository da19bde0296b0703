"""Renders the pages that quote the source and compute their numbers: their templates are in docs/book/templates/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from docs.book.computing import claim, expand
from docs.book.drawings import bars, heatmap
from docs.book.quoting import quote
from docs.book.reference import commands
from docs.book.traps import damages, sentence

TEMPLATES = Path(__file__).parent / "templates"
PAGES = [path.relative_to(TEMPLATES).with_suffix(".md").as_posix() for path in sorted(TEMPLATES.rglob("*.template"))]


def write_page(docs: Path, page: str) -> None:
    """Renders a page, such as zh/transformer.md, into a folder, and its drawings into images/ there."""
    text, drawings = render(page)
    for name, drawing in drawings.items():
        (docs / "images").mkdir(exist_ok=True)
        (docs / "images" / name).write_text(drawing + "\n", encoding="utf-8", newline="\n")
    (docs / page).parent.mkdir(exist_ok=True)
    (docs / page).write_text(text, encoding="utf-8", newline="\n")


def render(page: str) -> tuple[str, dict[str, str]]:
    """Returns the text of a page, and its drawings by file name."""
    drawings: dict[str, str] = {}
    stem, images = page.removesuffix(".md").replace("/", "-"), "../" * page.count("/") + "images"

    def as_file(draw: Callable[..., str]) -> Callable[..., str]:
        """Returns a function that draws into a file and returns the Markdown that shows it with its caption."""

        def show(*arguments: object, **options: object) -> str:
            name = f"{stem}-{len(drawings) + 1}.svg"
            drawings[name] = draw(*arguments, **options)
            caption = arguments[-1]
            return f"![{caption}]({images}/{name})\n\n*{caption}*"

        return show

    names = {"claim": claim, "commands": commands, "damages": damages, "quote": quote, "sentence": sentence}
    template = (TEMPLATES / page).with_suffix(".template").read_text(encoding="utf-8")
    with torch.enable_grad():  # a page may turn gradients off: this restores the present mode
        text = expand(template, names | {"bars": as_file(bars), "heatmap": as_file(heatmap)}, page)
    torch.set_printoptions(profile="default")
    return text, drawings
