"""Writes docs/claims.md, its Chinese twin and their plots from the figures in docs/claims/.

The text is in claims.md and claims.zh.md beside this file: parts that begin with `<!-- NAME -->`, in which
{{ expressions }} use the figures of a claim and the conclusions that verdicts.py draws from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.book.computing import expand

from benchmarks.experiments import claim_plots, heads_and_norms, recurrent_networks, transformer_parts, verdicts
from benchmarks.experiments.claim_records import Figures, command, read_record
from benchmarks.experiments.verdicts import Conclusions
from benchmarks.tables import markdown_table as table

PAGES = {"claims.md": "claims.md", "zh/claims.md": "claims.zh.md"}
"""Pages below docs/, and their templates beside this file."""


@dataclass(frozen=True)
class Claim:
    """A statement about the Transformer: how it is measured, drawn and judged; the templates put it into words."""

    name: str
    measure: Callable[[int], Figures]
    draw: Callable[[Figures], dict[str, str]]
    judge: Callable[[Figures], Conclusions]


CLAIMS = [
    Claim(
        name, getattr(module, f"measure_{name}"), getattr(claim_plots, f"draw_{name}"), vars(verdicts)[f"judge_{name}"]
    )
    for name, module in (
        ("speed", recurrent_networks),
        ("recall", recurrent_networks),
        ("copying", recurrent_networks),
        ("saturation", transformer_parts),
        ("residuals", transformer_parts),
        ("heads", heads_and_norms),
        ("permutation", transformer_parts),
        ("norms", heads_and_norms),
        ("contexts", transformer_parts),
        ("cost", transformer_parts),
    )
]


def write_pages(docs: Path) -> list[Path]:
    """Writes the pages in both languages, and the plots of the claims that were measured."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for claim in CLAIMS:
        if (docs / "claims" / f"{claim.name}.json").is_file():
            for end, picture in claim.draw(read_record(docs / "claims", claim.name)["figures"]).items():
                (docs / "images" / picture_name(claim, end)).write_text(picture, encoding="utf-8")
    for page in PAGES:
        (docs / page).parent.mkdir(exist_ok=True)
        (docs / page).write_text(make_page(docs / "claims", page), encoding="utf-8", newline="\n")
    return [docs / page for page in PAGES]


def make_page(folder: Path, page: str) -> str:
    template = Template(Path(__file__).with_name(PAGES[page]))
    measured = [claim for claim in CLAIMS if (folder / f"{claim.name}.json").is_file()]
    sections = [section(claim, read_record(folder, claim.name), template, page) for claim in measured]
    rest = [f"- {template.claim(each.name)} `{command(each.name, 1)}`" for each in CLAIMS if each not in measured]
    missing = [template.parts["missing"] + "\n", *rest, ""] if rest else []
    return "\n".join([template.parts["head"] + "\n", *sections, *missing])


def section(claim: Claim, record: dict[str, Any], template: Template, page: str) -> str:
    figures = record["figures"]
    names = {name.replace(" ", "_"): value for name, value in figures.items()} | claim.judge(figures)
    text = template.fill(claim.name, {**names, "record": record})
    images, title = "../" * page.count("/") + "images", text.partition("\n")[0].removeprefix("## ")
    plots = [f"![{title}]({images}/{picture_name(claim, end)})\n" for end in claim.draw(figures)]
    return "\n".join([text + "\n", *plots, template.fill("origin", {"record": record}), ""])


def picture_name(claim: Claim, end: str) -> str:
    return f"claims-{claim.name}{f'-{end}' if end else ''}.svg"


class Template:
    """The text of the page in one language, by its parts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = re.split(r"^<!-- (\w+) -->\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        self.parts = {name: text.rstrip() for name, text in zip(found[1::2], found[2::2], strict=True)}
        self.words = dict(line.split(" = ", 1) for line in self.parts["words"].splitlines())

    def word(self, name: str) -> str:
        """Returns the page's word for a name of the figures, if it has one."""
        return self.words.get(name, name)

    def claim(self, name: str) -> str:
        """Returns the sentence that a section quotes and judges."""
        return self.parts[name].partition("\n> ")[2].partition("\n")[0]

    def fill(self, part: str, names: dict[str, Any]) -> str:
        """Returns a part of the page with its expressions computed."""
        own = {
            "share": share,
            "table": lambda *given: table(*given).rstrip(),
            "pilot": verdicts.PILOT,
            "word": self.word,
            "part": lambda other: self.fill(other, names),
            "verdict": self.word("holds" if names.get("holds") else "fails"),
            "accuracies": lambda *heads: accuracies(names["models"], *heads),
        }
        return expand(self.parts[part], own | names, f"{self.path.name}, {part}")


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def accuracies(models: Figures, model: str, across: list[int], seconds: str, word: Callable[[str], str]) -> str:
    """Returns a table of accuracies and of the seconds that training took."""
    rows = [[word(name), *map(share, each["accuracy"]), f"{each['seconds']:.0f}"] for name, each in models.items()]
    return table([model, *map(str, across), seconds], rows).rstrip()
