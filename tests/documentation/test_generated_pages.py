"""Two rules for generated pages: a page on disk is what its generator makes, and its figures come from records."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from benchmarks.experiments import claims_page
from docs import generate
from docs.book import rendering

from benchmarks import benchmarks_page, quality_report
from tests.documentation import quoted_figures
from tests.documentation.pages import ROOT

DOCS = ROOT / "docs"
TEMPLATES = [path for path in sorted((ROOT / "benchmarks").rglob("*.md")) if path.name != "README.md"]
GENERATORS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings.md": ("docs/generate.py", generate.write_pages),
    "architecture.md": ("docs/generate.py", generate.write_pages),
    "zh/architecture.md": ("docs/generate.py", generate.write_pages),
    "benchmarks.md": (
        "benchmarks/benchmarks_page.py",
        lambda docs: benchmarks_page.write_page(docs / "benchmarks.md"),
    ),
    "quality.md": (
        "benchmarks/quality.py --report-only",
        lambda docs: quality_report.write_report(docs / "no-new-runs", docs / "quality"),
    ),
    "claims.md": ("benchmarks/claims.py --report-only", claims_page.write_pages),
    "zh/claims.md": ("benchmarks/claims.py --report-only", claims_page.write_pages),
    **{page: ("docs/generate.py", partial(rendering.write_page, page=page)) for page in rendering.PAGES},
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.mark.parametrize("page", GENERATORS)
def test_a_page_and_its_plots_are_what_the_generator_makes(page: str, tmp_path: Path) -> None:
    command, write = GENERATORS[page]
    for records in ("quality", "claims"):
        shutil.copytree(DOCS / records, tmp_path / records)
    write(tmp_path)
    made = tmp_path / page
    equal = up_to_rounding if page in rendering.PAGES else str.__eq__
    assert equal(made.read_text(encoding="utf-8"), (DOCS / page).read_text(encoding="utf-8")), f"run: python {command}"
    for name in re.findall(r"\]\(((?:\.\./)?images/[\w.-]+\.svg)\)", made.read_text(encoding="utf-8")):
        stored = (DOCS / page).parent / name
        if (made.parent / name).is_file():  # plots of recipes that are gone have no records to draw from
            drawn = (made.parent / name).read_text(encoding="utf-8")
            assert equal(drawn, stored.read_text(encoding="utf-8")), f"run: python {command}"
            ElementTree.fromstring(drawn)  # noqa: S314 - our own
            assert not re.search(r"black|white|#000|#fff|\bnan\b|\binf\b", drawn)
        assert stored.is_file()


def up_to_rounding(made: str, stored: str) -> bool:
    """Compares texts whose computed numbers may differ a little between processors; tiny ones are rounding errors."""
    numbers = zip(map(float, NUMBER.findall(made)), map(float, NUMBER.findall(stored)), strict=False)
    return NUMBER.sub("0", made) == NUMBER.sub("0", stored) and all(
        abs(one - other) <= max(0.02, 0.01 * abs(other)) for one, other in numbers
    )


def test_numbers_of_rendered_pages_may_differ_by_rounding_only() -> None:
    assert up_to_rounding("x = 1.23, 3.1e-07", "x = 1.24, 2.4e-07")
    for stored in ("x = 1.31", "y = 1.23", "x = 1.23, 1"):
        assert not up_to_rounding("x = 1.23", stored)


def test_no_page_has_the_marks_of_a_template() -> None:
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))
        assert not re.search(r"\{\{|^```python run|^computed: true", text, re.MULTILINE), (
            f"{page}: run docs/generate.py"
        )


def test_no_plot_is_left_over() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    plots = {path.name for path in (DOCS / "images").glob("*.svg")}
    assert plots <= set(re.findall(r"[\w.-]+\.svg", pages))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_figures_of_its_own(template: Path) -> None:
    """So every figure with a unit comes from a record, through the generator."""
    text = re.sub(r"\{\{.+?\}\}", "", template.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [figure.text for figure in quoted_figures.figures(text, template.name)] == []


def test_pages_in_two_languages_have_the_same_figures() -> None:
    """All numbers, section by section."""
    pages = ((DOCS / name).read_text(encoding="utf-8") for name in ("claims.md", "zh/claims.md"))
    english, chinese = (page.split("\n## ") for page in pages)
    assert len(english) == len(chinese) > len(claims_page.CLAIMS)
    for one, other in zip(english, chinese, strict=True):
        assert numbers(one) == numbers(other), other.partition("\n")[0]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"[0-9]+(?:[.,][0-9]+)*(?:e-[0-9]+)?", text))
