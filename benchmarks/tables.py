"""Tables of figures: how programs build them, print them, and write them as Markdown.

A row maps columns to values: a text, a number, or, of several rounds, the median, the least and the greatest.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.plots import Bars, draw_bars

Row = dict[str, Any]
Table = dict[str, Any]
TWO_PLACES = ("BLEU", "chrF", "÷", "ratio", "peak GB", "accuracy")  # words in the headings of such columns


def build(title: str, rows: Sequence[Row], note: str = "", bars: Mapping[str, Any] | None = None) -> Table:
    """Returns a titled table; `bars` describes its plot: the columns `names` and `values`, and the `unit`."""
    table: Table = {"title": title, "rows": list(rows)}
    return table | ({"note": note} if note else {}) | ({"bars": dict(bars)} if bars else {})


def spread(values: Sequence[float], places: int) -> float | list[float] | None:
    """Returns the median, and with several values the least and the greatest too."""
    if not values:
        return None
    found = [rounded(value, places) for value in (statistics.median(values), min(values), max(values))]
    return found[0] if len(values) == 1 else found


def rounded(value: float, places: int) -> float:
    return round(value, places) if places else round(value)


def columns(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns the headings of a table, and its cells as text."""
    listed = list(rows)
    heads = list(dict.fromkeys(key for row in listed for key in row))
    return heads, [[cell(head, row.get(head)) for head in heads] for row in listed]


def cell(head: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case [middle, least, most]:
            return f"{cell(head, middle)} ({cell(head, least)} to {cell(head, most)})"
        case list():
            return ", ".join(cell(head, each) for each in value)
        case int():
            return f"{value:,}"
        case float() if any(word in head for word in TWO_PLACES):
            return f"{value:.2f}"
        case float():
            return f"{value:.0e}" if 0 < abs(value) < 1e-4 and float(f"{value:.0e}") == value else f"{value:,}"
    return str(value)


def show(tables: Iterable[Table]) -> None:
    """Prints tables on the terminal."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for table in tables:
        heads, rows = columns(table["rows"])
        grid = Grid(title=table["title"] or None, caption=table.get("note"))
        for head in heads:
            grid.add_column(head)
        for row in rows:
            grid.add_row(*(text.replace("**", "") for text in row))
        console.print(grid)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def plain(text: str) -> str:
    """Escapes a text so that Markdown shows it as it is."""
    return re.sub(r"[\\`*_\[\]|~]", lambda found: f"&#{ord(found[0])};", escape(text, quote=False))


def to_markdown(section: str, table: Table, picture: str, pictures: dict[str, str]) -> list[str]:
    """Returns the parts of a page that show a table; its plot is added to `pictures` by its name, `picture`."""
    parts = [f"### {table['title']}\n"] if table["title"] else []
    if "bars" in table:
        pictures[picture] = plot(section, table)
        parts.append(f"![{section}, {table['title']}: {table['bars']['unit']}](images/{picture})\n")
    parts += [markdown_table(*columns(table["rows"]))] if table["rows"] else []
    return parts + ([f"{table['note']}\n"] if "note" in table else [])


def plot(section: str, table: Table) -> str:
    """Draws one or more columns, a group of bars for each; Regard's stand out."""
    about, groups = table["bars"], []
    for number, head in enumerate(about["values"]):
        bars = []
        for row in table["rows"]:
            value = row.get(head)
            if value is not None:
                name = ", ".join(str(row[name]) for name in about["names"] if row.get(name))
                bars.append((name, float(value[0] if isinstance(value, list) else value)))
        ours = "Regard" if any(name.startswith("Regard") for name, _ in bars) else ""
        groups.append(Bars(head, bars, number, ours))
    return draw_bars(f"{section}: {table['title']}", about["unit"], [group for group in groups if group.values])
