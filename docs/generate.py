"""Writes the pages that are made from the source: `python docs/generate.py`.

These are docs/settings.md, the tree of modules in docs/architecture.md, and the pages of docs/book/templates/, whose
code is quoted and whose numbers are computed. A test compares the pages with the source.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from regard.files.check_thresholds import CheckSettings
from regard.preparation.chosen_settings import PRESETS, TASKS
from regard.settings import Settings
from regard.settings.option_fields import Option, options

HEAD = """# Settings

Every setting is a TOML key and a flag: `width` of the section `model` is `[model] width = 256` in a file given with
`--settings FILE`, and `--model.width 256` on the command line. Later wins: defaults, then what the task needs, then the
preset, then the file, then the flags. `none` on the command line clears a setting. `python docs/generate.py` makes this
page from the source.
"""


def page() -> str:
    """Returns the reference of all settings as Markdown."""
    lines, section = [HEAD], None
    for option in options(Settings):
        *parents, name = option.path.split(".")
        if parents != section:
            section = parents
            title = f"`[{parents[0]}]`" if parents else "At the top"
            lines += [f"\n## {title}\n", "| setting | meaning | default | takes |", "|---|---|---|---|"]
        lines.append(row(name, option))
    lines += [
        "\n## `check.`: what `regard check` reports\n",
        "| flag | meaning | default | takes |",
        "|---|---|---|---|",
    ]
    lines += [row(f"--check.{option.path}", option) for option in options(CheckSettings)]
    lines += ["\n## Presets\n", "Chosen by the size of the corpus where `preset` is `auto` (the default).\n"]
    lines += ["| task | preset | changes |", "|---|---|---|"]
    for task, presets in PRESETS.items():
        for preset, tables in {"always": TASKS[task], **presets}.items():
            if tables:
                lines.append(f"| {task} | {preset} | {changes(tables)} |")
    return "\n".join(lines) + "\n"


def row(name: str, option: Option) -> str:
    """Returns a row of a table; `|` in a help text would begin the next cell."""
    meaning = option.help.replace("|", "\\|")
    default = f"`{shown(option.default)}`" if shown(option.default) else "nothing"
    return f"| `{name}` | {meaning} | {default} | {kind(option.type)} {option.bounds or ''}".rstrip() + " |"


def changes(tables: dict[str, Any]) -> str:
    """Returns the settings that a preset changes, in the order of the page."""
    values = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
    names = [option.path for option in options(Settings) if option.path in values]
    return ", ".join(f"`{name} = {shown(values[name])}`" for name in names)


def shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    if hint in names:
        return names[hint]
    if get_origin(hint) is tuple:
        return "names" if get_args(hint)[0] is str else "numbers"
    return " or ".join("none" if each is type(None) else names[each] for each in get_args(hint))


def tree() -> str:
    """Returns every package and module of Regard with the first line of its docstring."""
    source = DOCS.parent / "src" / "regard"
    lines = ["src/regard/"]
    modules = [path for path in source.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    packages = [path.parent for path in source.rglob("*/__init__.py")]
    for path in sorted([*modules, *packages]):
        depth = len(path.relative_to(source).parts)
        name = "  " * depth + path.name + ("/" if path.is_dir() else "")
        text = ast.get_docstring(
            ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8"))
        )
        lines.append(f"{name:<{COLUMN}} {(text or '').partition(chr(10))[0]}".rstrip())
    return "\n".join(lines)


def with_tree(page: str) -> str:
    """Returns the page about the architecture with the present tree."""
    return re.sub(r"(?<=```text\n)src/regard/\n.*?(?=```)", lambda _: tree() + "\n", page, flags=re.DOTALL)


def write_pages(docs: Path) -> None:
    """Writes the pages into a folder."""
    (docs / "zh").mkdir(exist_ok=True)
    (docs / "settings.md").write_text(page(), encoding="utf-8", newline="\n")
    for name in ("architecture.md", "zh/architecture.md"):
        (docs / name).write_text(with_tree((DOCS / name).read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


DOCS = Path(__file__).parent
COLUMN = 30
"""Width of the names in the tree."""

if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    from docs.book.rendering import PAGES, write_page

    write_pages(DOCS)
    for each in PAGES:
        write_page(DOCS, each)
