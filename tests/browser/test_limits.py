"""Times and sizes of EXPLORER's limits, measured in the browser: the bounds here are the hard ones.

A machine that has other things to do is slow for a while, so times are measured again where they are beyond a bound.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

import regard
from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched
from tests.browser.models import arranged

PAGE = Path(regard.__file__).parent / "explorer" / "page"
SHORT = "The animal didn't cross the street because it was too tired."
LONG = "The dog didn't cross the street because it was too tired. " * 20
AGAIN = ("tired", "wide", "old", "big", "small", "long", "near", "far")  # other words, so that no run is known already

HOVER = (Path(__file__).parents[2] / "benchmarks" / "explorer_hover_times.js").read_text(encoding="utf-8")


def imports(name: str, found: set[str]) -> set[str]:
    """A module and all that it loads at once."""
    if name not in found:
        found.add(name)
        for other in re.findall(r'^import .*?from "regard/(.*?)"', (PAGE / name).read_text(encoding="utf-8"), re.M):
            imports(other, found)
    return found


def test_the_page_is_small_and_its_files_are_short() -> None:
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    weight = {path.relative_to(PAGE).as_posix(): len(gzip.compress(path.read_bytes(), 9)) for path in files}
    for view in re.findall(r'import\("regard/(views/.*?)"\)', (PAGE / "explorer-app.js").read_text(encoding="utf-8")):
        loaded = {"index.html", "style.css", *imports("explorer-app.js", set()), *imports(view, set())}
        own = "journey" if view == "views/sentence-journey.js" else "views"
        language = max(weight[f"strings.{name}.js"] + weight[f"strings.{own}.{name}.js"] for name in ("en", "zh"))
        # 64 KB and not 60 since the page chooses a start, marks unknown words, presents, and has lessons.
        assert sum(weight[name] for name in loaded) + language <= 64 * 1024, view
    page = sum(size for name, size in weight.items() if not name.startswith(("lessons/", "engine/")))
    assert page <= 156_000  # all views, all languages: nobody loads them all at once
    assert sum(size for name, size in weight.items() if name.startswith("engine/")) <= 60_000  # published pages only
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 400, path
        assert not re.search("https?://(?!www.w3.org/)", text), path


def wait_for_run(watched: Watched, address: str, text: str) -> tuple[Page, float]:
    """The page after a run, and the milliseconds from the request to the numbers."""
    watched.page.evaluate("performance.clearResourceTimings()")
    page = watched.open(f"{address}#view=atlas&text={quote(text)}")
    page.wait_for_selector("[data-ms]")
    entries = "performance.getEntriesByType('resource').filter(e => e.name.includes('/api/run'))"
    run = page.evaluate(f"{entries}.map(e => [e.startTime, e.responseEnd, e.decodedBodySize])")
    return page, run[-1][1] - run[0][0]


@pytest.mark.usefixtures("needs_server")
def test_a_short_sentence_is_there_at_once(watched: Watched, address: str) -> None:
    watched.open(f"{address}#text={quote('The bear is tired.')}")  # the first run warms PyTorch up
    for word in AGAIN:
        page, milliseconds = wait_for_run(watched, address, SHORT.replace("tired", word))
        if milliseconds < 2000:
            break
    assert milliseconds < 2000
    sizes = page.evaluate(
        "performance.getEntriesByType('resource').filter(e => e.name.includes('/tensors')).map(e => e.decodedBodySize)"
    )
    assert 0 < sum(sizes) < 2_000_000


@pytest.mark.usefixtures("needs_server")
def test_a_long_text_is_cut_in_words_and_stays_within_the_limits(
    watched: Watched, serve: Callable[[Explorer], str]
) -> None:
    address = serve(arranged("post-norm, tied"))
    for word in AGAIN:
        page, milliseconds = wait_for_run(watched, address, LONG.replace("tired", word))
        drawing = float(page.locator("[data-ms]").first.get_attribute("data-ms") or "inf")
        if milliseconds < 15_000 and drawing < 300:
            break
    assert milliseconds < 15_000
    assert drawing < 300
    assert "128" in page.inner_text(".warning")
    assert page.locator("#playhead .chips").first.locator("button").count() == 128
    page = watched.open(f"{address}#view=head&text={quote(LONG)}")
    assert min(page.locator("[role=grid]").first.evaluate(HOVER) for _ in range(3)) < 50
    assert page.locator("#main td").count() <= 2000


@pytest.mark.parametrize("view", ["journey", "lens", "decoding", "beam", "alignment"])
def test_long_texts_keep_every_view_small(watched: Watched, serve: Callable[[Explorer], str], view: str) -> None:
    page = watched.open(f"{serve(arranged('post-norm, tied'))}#view={view}&text={quote(LONG)}")
    assert page.query_selector("#main .error") is None
    assert page.locator("#main *").count() < 12_000
