"""The site: built strictly, with every page in its navigation, and nothing fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from docs.book.computing import BookError, claim, expand
from docs.book.drawings import bars, heatmap
from docs.book.links import for_site, foreign_origins
from docs.book.navigation import ELSEWHERE, SECTIONS, navigation, pages_in_docs, title
from docs.book.quoting import find, quote

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site; a broken link, a name that is gone or a foreign address stops the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "REGARD_LIVE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_is_built_and_can_be_reached(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    pages = [*pages_in_docs(), *ELSEWHERE]
    assert len(pages) > 30
    assert '<iframe src="live/index.html"' in index  # which `make site` publishes there
    for page in pages:
        address = page.removesuffix(".md") + ".html"
        assert (site / address).is_file()
        assert page == "index.md" or f'href="{address}"' in index, page


def test_the_site_has_neither_sources_of_its_own_making_nor_foreign_addresses(site: Path) -> None:
    assert not [*site.rglob("*.py"), *site.rglob("*.md")]
    assert foreign_origins(site) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.com/a.js"></script>',
        "<img alt='x' src=//example.com/a.png>",
        '<link rel="stylesheet" href="https://example.com/a.css">',
        "<style>a { background: url(https://example.com/a.png) }</style>",
        "<p>without the rule</p>",
    ],
)
def test_what_would_be_fetched_from_elsewhere_is_found(text: str, tmp_path: Path) -> None:
    rule = "" if "without" in text else '<meta http-equiv="Content-Security-Policy" content="x">'
    (tmp_path / "page.html").write_text(f'<a href="https://example.com/">a link is no request</a>{rule}{text}')
    assert len(foreign_origins(tmp_path)) == 1


def test_a_page_that_nobody_has_placed_stands_under_how_to() -> None:
    titles = {"zebra.md": "Z", "train.md": "T", "zh/readme.md": "读", "zh/train.md": "训"}
    assert navigation(["index.md", *titles], titles) == [
        {"Regard": "index.md"},
        {"How-to": [{"T": "train.md"}, {"Z": "zebra.md"}]},
        {"简体中文": [{"读": "zh/readme.md"}, {"训": "zh/train.md"}]},
    ]
    assert title("text\n# `regard` *look*\n", "x") == "regard look"


def test_every_placed_page_is_there() -> None:
    for pages in SECTIONS.values():
        for page in pages:
            assert list((ROOT / "docs").glob(page)), page


def test_links_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for name in ("docs/a.md", "docs/in/b.md", "README.md", "src/code.py", "docs/p.svg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    homes = {root / "docs/a.md": "a.md", root / "docs/in/b.md": "in/b.md", root / "README.md": "readme.md"}

    def made(text: str, home: str, page: str) -> str:
        return for_site(text, root / home, page, homes, root)

    assert made("[x](docs/a.md#y) ![p](docs/p.svg)", "README.md", "readme.md") == "[x](a.md#y) ![p](p.svg)"
    assert made("[x](../a.md) [r](../../README.md)", "docs/in/b.md", "in/b.md") == "[x](../a.md) [r](../readme.md)"
    assert made("[`c`](../src/code.py) `[x](../src/code.py)`", "docs/a.md", "a.md") == "`c` `[x](../src/code.py)`"
    assert made("[x](https://e.org/a) [gone](gone.md)", "docs/a.md", "a.md") == "[x](https://e.org/a) [gone](gone.md)"


def test_a_page_computes_what_it_shows() -> None:
    names: dict[str, object] = {}
    page = "```python run\nx = 3\nprint('so')\nx * 2\n```\nIt is {{ x + 1 }}.\n"
    assert re.findall(r"^(?:so|6|It is 4\.)$", expand(page, names, "p"), re.MULTILINE) == ["so", "6", "It is 4."]
    for wrong in ("one\ntwo {{ nothing }}", "one\n```python run\n1 / 0\n```\n"):
        with pytest.raises(BookError, match="p:2: "):
            expand(wrong, {}, "p")


def test_a_claim_that_no_longer_holds_stops_the_build() -> None:
    assert expand("So it is.{{ claim(1 < 2) }}", {"claim": claim}, "p") == "So it is."
    with pytest.raises(BookError, match="no longer holds"):
        expand("So it is.{{ claim(2 < 1) }}", {"claim": claim}, "p")


def test_source_is_quoted_from_where_it_stands() -> None:
    quoted = quote("regard.model.attention.KeyValues.extend")
    head, file, first, *_ = quoted.splitlines()
    assert (head, file) == ("```python", "# src/regard/model/attention.py")
    assert first.startswith("def extend(self, keys: Tensor, values: Tensor) -> ")
    assert first in (ROOT / "src/regard/model/attention.py").read_text(encoding="utf-8")
    assert find("regard.errors.RegardError").__name__ == "RegardError"


@pytest.mark.parametrize("name", ["regard.model.attention.gone", "regard.gone.attend", "nowhere.at.all"])
def test_what_is_gone_cannot_be_quoted(name: str) -> None:
    with pytest.raises(BookError):
        expand(f'{{{{ quote("{name}") }}}}', {"quote": quote}, "p")


def test_figures_are_drawn_from_their_numbers() -> None:
    picture = heatmap(
        torch.tensor([[1.0, -torch.inf], [-0.5, 0.25]]), ["a", "b"], ["c", "<d>"], "two & two", numbers=True
    )
    assert "\n" not in picture
    figure = ElementTree.fromstring(picture)  # noqa: S314 - ours
    boxes = [element for element in figure.iter() if element.tag.endswith("rect")]
    assert [box.get("fill-opacity") for box in boxes] == ["1.000", "0.500", "0.250"]
    assert len({box.get("fill") for box in boxes}) == 2
    assert {"a", "b", "c", "<d>", "1.0", "-.50", ".25"} <= set(figure.itertext())
    assert figure.get("aria-label") == "two & two"
    lengths = [element.get("width") for element in ElementTree.fromstring(bars([("x", 2.0), ("y", -1.0)], "z")).iter()]  # noqa: S314 - ours
    assert {"300.0", "150.0"} <= set(lengths)
