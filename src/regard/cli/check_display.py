"""What regard check found, in a terminal or a log file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from regard.files.pair_checks import unmatched_items

if TYPE_CHECKING:
    from regard.files.corpus_check import Examination, Finding

WIDTH = 160
"""Of a line of examples where the output is not a terminal."""
COLOURS = {"error": "red", "warning": "yellow"}


def tell(found: Examination, output: Path | None, console: Console | None = None) -> None:
    """Every kind of fault with its count, its share and the first pairs that have it."""
    console = console or Console(highlight=False)
    report, width = found.report, console.width if console.is_terminal else WIDTH
    total = report.pairs
    more = f", {total:,} with the forms of plurals and the lines of texts" if report.further else ""
    console.print(Text(f"{report.read:,} pairs in {_files(found)}{more}"), soft_wrap=True)
    present = {name: finding for name, finding in found.findings.items() if finding.count}
    for name, finding in present.items():
        severity = found.severity(name)
        line = Text.assemble(
            (f"\n{severity:8}", COLOURS[severity]),
            (f"{name:14}", "bold"),
            f"{finding.count:>11,} {finding.count / total:>8.2%}   {finding.check.meaning}",
        )
        console.print(line, soft_wrap=True)
        for row in _examples(name, finding, width):
            console.print(Text(row, style="dim"), soft_wrap=True)
    lines = [f"Nothing found: {', '.join(name for name in found.findings if name not in present)}."]
    if found.tested:
        lines.append(f"{len(found.leaked):,} of the {len(found.tested):,} sources of the test set are in the corpus.")
    lines += found.notes()
    dropped = total - found.kept
    if output:
        lines.append(f"{output}: {found.kept:,} pairs written, {dropped:,} dropped{_reasons(found)}.")
    elif dropped:
        lines.append(f"{found.kept:,} pairs have no error; --fix -o clean.tsv writes these and drops {dropped:,}.")
    console.print(Text("\n" + "\n".join(lines)), soft_wrap=True)


def _reasons(found: Examination) -> str:
    """Why pairs were dropped; one may have several errors."""
    counts = {name: finding.count for name, finding in found.findings.items() if found.severity(name) == "error"}
    told = [f"{name} {count:,}" for name, count in counts.items() if count]
    return f" ({', '.join(told)})" if told else ""


def _files(found: Examination) -> str:
    more = f" and {len(found.files) - 4} more files" if len(found.files) > 5 else ""
    return ", ".join(map(str, found.files[: 4 if more else None])) + more


def _examples(name: str, finding: Finding, width: int) -> Iterator[str]:
    """For each example, where it is and what differs, and on a line of their own the texts."""
    room = (width - 17) // 2
    for example in finding.examples:
        only = unmatched_items(name, example.source, example.target)
        told = [f"{', '.join(texts[:5])} only {where}" for texts, where in zip(only, SIDES, strict=True) if texts]
        yield f"{'':8}{example.where}" + (f"  ({shorten('; '.join(told), width)})" if told else "")
        if example.source or example.target:
            yield f"{'':12}{shorten(example.source, room)}  →  {shorten(example.target, room)}"


SIDES = "in the source", "in the target"


def shorten(text: str, length: int) -> str:
    """The beginning of a text, with what cannot be seen spelt out."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"
