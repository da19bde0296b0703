"""Finds figures in hand-written pages that are in no record: `python -m tests.documentation.quoted_figures`.

A figure is a number with a unit of speed, quality or memory (`UNITS`), in a sentence or in the column of a table whose
heading has the unit. Its block (a paragraph, an entry of a list, a table) names the records that have it: by a link to
one, or by `<!-- measured: NAME, NAME -->` in it or right below it. Every figure of the block has to be in one of them,
rounded as it is written. Of runs of a recipe with three seeds or more, a block may also have their mean and the
published score; with fewer seeds, it says so and compares nothing.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.records import MEASURED, NUMBER, QUALITY, numbers, read

from benchmarks import quality_report as report

ROOT = Path(__file__).parents[2]
GENERATED = {"benchmarks.md", "quality.md", "claims.md", "settings.md", "commands.md", "transformer.md"}
"""Pages that programs write from records or the source."""
NOTEBOOK = {"log.md", "CHANGELOG.md"}  # notes of trials, as they were written
UNITS = (
    r"(?:BLEU|chrF|(?:sentences|tokens|lines|requests)/s|GFLOP/s|nats|ms\b|"
    r"times as (?:long|fast|quick|many)|times faster|of the offline|÷)"
)
MEMORY = r"(?:MiB|GiB|MB|GB)"
"""Units in blocks about a peak of memory: elsewhere they are of limits, or of files."""
NAMED = re.compile(r"<!-- measured: ([\w., -]+?) -->|\]\([\w./-]*(?:measured|quality)/([\w.-]+)\.json\)")
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PUBLISHED = re.compile(r"\bpublished (?:\w+ ){0,2}(?:Transformer|score|model|has)|\bis published\b|公开发表")
FEW_SEEDS = re.compile(r"(?i)\b(?:one|two|another|other) (?:\w+ )?(?:seeds?|runs?)\b|[一两另](?:一)?个(?:随机)?种子")
COMPARING = re.compile(r"\b(?:where it had|in place of|without|better|best|worse|gains?|brings?)\b|优于|更好|提高")
AMOUNT = r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w.,-]*\w)"


@dataclass(frozen=True)
class Figure:
    """A number of a page as it is written, and the records that its block names."""

    page: str
    line: int
    text: str
    records: tuple[str, ...]

    @property
    def fault(self) -> str:
        """The message about a figure that is in no record; empty if one has it."""
        if not self.records:
            return f"{self.page}:{self.line}: {self.text} has no record: add <!-- measured: NAME --> to its paragraph"
        try:
            given = [value for name in self.records for value in numbers(name)]
        except FileNotFoundError as error:
            return f"{self.page}:{self.line}: {error}"
        if any(same(self.text, value) for value in (*given, *means(self.records))):
            return ""
        return f"{self.page}:{self.line}: {self.text} is not in {', '.join(self.records)}"


@cache
def quality_record(name: str) -> report.Record | None:
    """Returns the record of a run of a recipe, if this is one."""
    path = QUALITY / f"{name}.json"
    return read(path) if path.is_file() else None


def recipe_runs(names: Sequence[str]) -> list[list[report.Record]]:
    """Returns the named runs of recipes, in groups that differ in their seeds only."""
    records = [record for name in names if (record := quality_record(name))]
    return [like for its in report.grouped(records).values() for like in report.alike(its).values()]


def means(names: Sequence[str]) -> Iterator[float]:
    """Yields mean scores of the named runs with enough seeds, and the published score of their recipe."""
    for like in recipe_runs(names):
        if report.seeds(like) >= report.SEEDS:
            yield report.level(like[0]["recipe"], like[0]["form"]) or 0.0
            for key in ("sets", "agreed"):
                for name in set.intersection(*(set(each.get(key, {})) for each in like)):
                    yield statistics.fmean(each[key][name]["BLEU"]["value"] for each in like)


def weak_comparisons(markdown: str, page: str) -> Iterator[str]:
    """Yields a message for each block that compares scores of recipes without naming runs with enough seeds."""
    for line, block in blocks(markdown):
        words = NAMED.sub("", block)
        if "BLEU" not in words:
            continue
        runs = recipe_runs(names_of(block))
        few = [like[0]["recipe"] for like in runs if report.seeds(like) < report.SEEDS]
        where = f"{page}:{line}"
        if PUBLISHED.search(words) and re.search(r"\d", words) and (few or not runs):
            yield f"{where}: compares with a published score without naming runs of {report.SEEDS} seeds"
        elif few and not FEW_SEEDS.search(words):
            yield f"{where}: {few[0]} has fewer than {report.SEEDS} seeds here, which the paragraph does not say"
        elif few and COMPARING.search(words):
            yield f"{where}: compares scores of {few[0]}, which has fewer than {report.SEEDS} seeds here"


def same(text: str, value: float) -> bool:
    """Tells whether a written number is this value, rounded, or its percentage."""
    plain = text.replace(",", "")
    places = len(plain.partition(".")[2])
    return any(round(each, places) == float(plain) for each in (value, 100 * value))


def figures(markdown: str, page: str) -> Iterator[Figure]:
    """Yields every figure of a page."""
    for line, block in blocks(markdown):
        found = in_table(block) if block.lstrip().startswith("|") else in_prose(block)
        yield from (Figure(page, line, each, names_of(block)) for each in dict.fromkeys(found))


def names_of(block: str) -> tuple[str, ...]:
    """Returns the records that a block names."""
    return tuple(name.strip() for pair in NAMED.findall(block) for name in (pair[0] or pair[1]).split(","))


def blocks(markdown: str) -> Iterator[tuple[int, str]]:
    """Yields paragraphs, entries of lists and tables with their first lines; a comment belongs to the block above."""
    text = FENCES.sub(lambda found: "\n" * found[0].count("\n"), markdown)
    line, kept = 1, list[tuple[int, str]]()
    for part in re.split(r"(\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) ))", text):
        if kept and part.strip().startswith("<!-- measured:"):
            kept[-1] = kept[-1][0], kept[-1][1] + "\n" + part
        elif part.strip():
            kept.append((line, part))
        line += part.count("\n")
    return iter(kept)


def in_prose(block: str) -> Iterator[str]:
    """Yields numbers before a unit, with those that share it: "24.5 and 26 BLEU", "169 to 210 MiB of memory"."""
    units = f"(?:{UNITS}|{MEMORY})" if re.search(r"\bpeaks?\b|server's memory", block) else UNITS
    several = rf"({AMOUNT}(?:(?:,| to| and|,? against|,? or| for) {AMOUNT})*)\s?{units}"
    for found in re.findall(several, " ".join(block.split())):
        yield from re.findall(AMOUNT, found)


def in_table(block: str) -> Iterator[str]:
    """Yields numbers in columns whose headings have a unit, and those in other cells that have one themselves."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines() if "|" in line]
    measured = re.compile(rf"{UNITS}|{MEMORY}|\b(?:ratio|ms|seconds)\b")
    for row in rows[2:]:
        for head, cell in zip(rows[0], row, strict=False):
            yield from NUMBER.findall(cell) if measured.search(head) else in_prose(cell)


def checked_pages() -> list[Path]:
    """Returns the hand-written pages."""
    every = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in every if page.name not in GENERATED | NOTEBOOK)


def faults(page: Path) -> list[str]:
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    return [*(figure.fault for figure in figures(text, name) if figure.fault), *weak_comparisons(text, name)]


if __name__ == "__main__":
    found = [fault for page in checked_pages() for fault in faults(page)]
    print("\n".join(found) or f"every figure is in a record of {MEASURED.relative_to(ROOT)}")
