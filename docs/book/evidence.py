"""Figures in hand-written pages, and the records that they come from.

A figure is a number with a unit of speed, quality or memory (`UNITS`), in a sentence or in the column of a table whose
heading has the unit. Its block (a paragraph, an entry of a list, a table) names the records that have it: by a link to
one, or by `<!-- measured: NAME, NAME -->` in it or right below it. Every figure of the block has to be in one of them,
rounded as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.records import MEASURED, NUMBER, numbers

ROOT = Path(__file__).parents[2]
GENERATED = {"benchmarks.md", "quality.md", "claims.md", "settings.md", "commands.md"}  # from records or the source
COMPUTED = "computed: true"  # numbers of a page that begins so are computed when the site is built
NOTEBOOK = {"log.md", "CHANGELOG.md"}  # notes of trials, kept as they were written
UNITS = (
    r"(?:BLEU|chrF|(?:sentences|tokens|lines|requests)/s|GFLOP/s|nats|ms\b|"
    r"times as (?:long|fast|quick|many)|times faster|of the offline|÷)"
)
"""Of speed and quality."""
MEMORY = r"(?:MiB|GiB|MB|GB)"
"""Of memory, where the block says that it is about a peak: elsewhere it is a limit, or the size of a file."""
NAMED = re.compile(r"<!-- measured: ([\w., -]+?) -->|\]\([\w./-]*(?:measured|quality)/([\w.-]+)\.json\)")
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
AMOUNT = r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w.,-]*\w)"


@dataclass(frozen=True)
class Figure:
    page: str
    line: int
    text: str  # the number as it is written
    records: tuple[str, ...]  # that its block names

    @property
    def fault(self) -> str:
        """What is wrong with it; nothing, if a record has it."""
        if not self.records:
            return f"{self.page}:{self.line}: {self.text} has no record: its paragraph lacks <!-- measured: NAME -->"
        try:
            if any(same(self.text, value) for name in self.records for value in numbers(name)):
                return ""
        except FileNotFoundError as error:
            return f"{self.page}:{self.line}: {error}"
        return f"{self.page}:{self.line}: {self.text} is not in {', '.join(self.records)}"


def same(text: str, value: float) -> bool:
    """Whether a number as it is written is this value, rounded, or its percentage."""
    plain = text.replace(",", "")
    places = len(plain.partition(".")[2])
    return any(round(each, places) == float(plain) for each in (value, 100 * value))


def figures(markdown: str, page: str) -> Iterator[Figure]:
    """Every figure of a page."""
    text = FENCES.sub(lambda found: "\n" * found[0].count("\n"), markdown)
    for line, block in blocks(text):
        records = tuple(name.strip() for pair in NAMED.findall(block) for name in (pair[0] or pair[1]).split(","))
        found = in_table(block) if block.lstrip().startswith("|") else in_prose(block)
        yield from (Figure(page, line, each, records) for each in dict.fromkeys(found))


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, entries of lists and tables, with their first lines; a comment belongs to the block above."""
    parts = re.split(r"(\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) ))", text)
    line, kept = 1, list[tuple[int, str]]()
    for part in parts:
        if kept and part.strip().startswith("<!-- measured:"):
            kept[-1] = kept[-1][0], kept[-1][1] + "\n" + part
        elif part.strip():
            kept.append((line, part))
        line += part.count("\n")
    return iter(kept)


def in_prose(block: str) -> Iterator[str]:
    """Numbers before a unit, with those that share it: "24.5 and 26 BLEU", "169 to 210 MiB of memory"."""
    units = f"(?:{UNITS}|{MEMORY})" if re.search(r"\bpeaks?\b|server's memory", block) else UNITS
    several = rf"({AMOUNT}(?:(?:,| to| and|,? against|,? or| for) {AMOUNT})*)\s?{units}"
    for found in re.findall(several, " ".join(block.split())):
        yield from re.findall(AMOUNT, found)


def in_table(block: str) -> Iterator[str]:
    """Numbers in columns whose headings have a unit, and those in other cells that have one themselves."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines() if "|" in line]
    measured = re.compile(rf"{UNITS}|{MEMORY}|\b(?:ratio|ms|seconds)\b")
    for row in rows[2:]:
        for head, cell in zip(rows[0], row, strict=False):
            yield from NUMBER.findall(cell) if measured.search(head) else in_prose(cell)


def checked_pages() -> list[Path]:
    """The hand-written pages."""
    every = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    own = [page for page in every if page.name not in GENERATED | NOTEBOOK]
    return sorted(page for page in own if COMPUTED not in page.read_text(encoding="utf-8")[:200])


def faults(page: Path) -> list[str]:
    found = figures(page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix())
    return [figure.fault for figure in found if figure.fault]


if __name__ == "__main__":
    told = [fault for page in checked_pages() for fault in faults(page)]
    print("\n".join(told) or f"every figure is in a record of {MEASURED.relative_to(ROOT)}")
