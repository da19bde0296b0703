"""What a person at the page meets: every view, by mouse and by keyboard, on any screen, with any text."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched
from tests.browser.models import SENTENCE, arranged

ATTENTION_VIEWS = ["journey", "atlas", "head", "microscope", "decoding", "beam", "lens", "whatif"]
VIEWS = ["whole", *ATTENTION_VIEWS, "positions", "space", "alignment", "time", "weights"]
TIRED = "The animal didn't cross the street because it was too tired."
every_view = pytest.mark.parametrize("view", VIEWS)


def main_text(page: Page) -> str:
    return re.sub(r"\s+", " ", page.inner_text("#main"))


def test_all_views_work_and_no_request_leaves_the_origin(watched: Watched, address: str) -> None:
    page = watched.open(address)
    names = [re.sub(".*view=", "", link.get_attribute("href") or "") for link in page.query_selector_all("#tabs a")]
    assert len(names) == len(VIEWS)
    for view in VIEWS:
        watched.open(f"{address}#view={view}")
        page.wait_for_selector("#main figure, .whole", state="attached")
        assert page.query_selector("#main .error") is None, page.inner_text("#main")
        assert len(page.inner_text("#main")) > 100, view
    away = [url for url in watched.requests if not url.startswith((address, "data:", "blob:", "about:"))]
    assert away == []


@pytest.mark.parametrize("name", ["GPT", "Llama", "BERT", "classifier", "pre-norm, untied, learned"])
def test_every_arrangement_has_its_views(watched: Watched, serve: Callable[[Explorer], str], name: str) -> None:
    explorer = arranged(name)
    address = serve(explorer)
    text = SENTENCE[explorer.describe()["task"]]
    page = watched.open(f"{address}#text={quote(text)}")
    for link in [each.get_attribute("href") for each in page.query_selector_all("#tabs a")]:
        watched.open(address + (link or ""))
        assert page.query_selector("#main .error") is None, f"{link}: {page.inner_text('#main .error')}"
        assert "undefined" not in page.inner_text("#main"), link
        assert "NaN" not in page.inner_text("#main"), link


def test_the_whole_journey_by_keyboard(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#text={quote(TIRED)}")
    titles = [page.inner_text("#main h2")]
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        watched.settle()
        if page.inner_text("#main h2") == titles[-1]:
            break
        titles.append(page.inner_text("#main h2"))
    assert len(titles) >= 25, titles
    assert len(set(titles)) == len(titles)
    page.keyboard.press("ArrowLeft")
    watched.settle()
    assert page.inner_text("#main h2") == titles[-2]
    for key in "1234":
        page.keyboard.press(key)
        watched.settle()
        assert f"depth={key}" in page.url or key == "2"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("]")
    watched.settle()
    assert "layer=1" in page.url
    assert "head=1" in page.url


def test_controls_are_reached_by_tab_and_cells_walked_by_arrows(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=head&text={quote(TIRED)}")
    cell = page.locator("[role=gridcell]").first
    cell.focus()
    before = cell.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert cell.get_attribute("aria-label") != before
    seen = set()
    page.focus("#tabs a")
    for _ in range(150):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("document.activeElement.localName + (document.activeElement.getAttribute('role') ?? '')")
        )
    assert {"a", "button", "select"} <= seen
    assert "divgridcell" in seen


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1600, 1000)])
def test_no_screen_has_to_be_scrolled_sideways(browser: Browser, address: str, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=width < 500)
    watched = Watched(context.new_page())
    for view in VIEWS:
        page = watched.open(f"{address}#view={view}&text={quote(TIRED)}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    context.close()
    assert watched.errors == []


UNUSUAL = ["label-content-name-mismatch", "target-size", "td-has-header", "p-as-heading", "table-fake-caption",
           "css-orientation-lock", "identical-links-same-purpose", "focus-order-semantics"]  # fmt: skip
"""Rules that axe-core leaves out by default; the rest of these are obsolete, or ask for the contrast of level AAA."""
RULES = {"rules": {name: {"enabled": True} for name in UNUSUAL}}


@pytest.mark.parametrize("how", ["light", "dark", "forced", "still", "phone"])
def test_the_page_has_no_serious_accessibility_faults(browser: Browser, address: str, how: str) -> None:
    """axe-core finds no serious violation: in light and dark, forced colours, reduced motion, on a dark phone."""
    context = browser.new_context(
        viewport={"width": 390 if how == "phone" else 1280, "height": 3000},  # the bar below covers nothing
        color_scheme="dark" if how in ("dark", "phone") else "light",
        forced_colors="active" if how == "forced" else "none",
        reduced_motion="reduce" if how == "still" else "no-preference",
    )
    watched, found = Watched(context.new_page()), []
    for view in VIEWS if how in ("light", "phone") else ("journey", "atlas", "head"):
        page = watched.open(f"{address}#view={view}&x=heads%3D0%252C1&text={quote(TIRED)}")
        if how in ("dark", "phone"):
            red, green, blue = map(
                int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
            )
            assert max(red, green, blue) < 60
        found += [
            (view, each["id"], [node["html"][:120] for node in each["nodes"][:3]])
            for each in Axe().run(page, options=RULES).response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    context.close()
    assert found == []
    assert watched.errors == []


@every_view
def test_a_link_brings_back_the_same_page(browser: Browser, address: str, view: str) -> None:
    state = f"view={view}&text={quote(TIRED)}&t=9&q=9&layer=1&head=1&stack=decoder&kind=cross_attention&depth=3&card=9"
    texts: list[str] = []
    link = f"{address}#{state}"
    for _ in range(2):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        watched = Watched(context.new_page())
        page = watched.open(link)
        page.wait_for_load_state("networkidle")  # effects and saved steps come later
        page.wait_for_selector("#main figure, .whole", state="attached")
        link = page.url
        texts.append(main_text(page))
        context.close()
    assert texts[0] == texts[1]
    assert f"view={view}" in link or view == "journey"
    assert "layer=1" in link


def test_the_interface_speaks_chinese(watched: Watched, address: str) -> None:
    for view in VIEWS:
        page = watched.open(f"{address}#view={view}&lang=zh&text={quote(TIRED)}")
        page.wait_for_selector("#main figure, .whole", state="attached")
        assert len(re.findall(r"[\u4e00-\u9fff]", page.inner_text("#main"))) > 10, view
    assert page.evaluate("document.documentElement.lang") == "zh-CN"


HOSTILE = '<img src=x onerror="document.title=1"> <script>alert(1)</script> שלום مرحبا 🤦🏽‍♀️ ‮abc 你好 \u0007'


def test_hostile_tokens_are_text(watched: Watched, address: str) -> None:
    for view in VIEWS:
        page = watched.open(f"{address}#view={view}&text={quote(HOSTILE)}")
        assert page.query_selector("#app img, #main script") is None, view
        assert page.title() != "1"
    said = page.inner_text("#playhead")
    assert "<" in said
    assert "⟨" in said  # bytes are shown as such


def test_a_wrong_request_is_told_in_words(watched: Watched, address: str) -> None:
    watched.refusals = True
    page = watched.page
    wrong = '[{"site": "nowhere", "op": "zero"}]'
    page.goto(f"{address}#text=Hello&patch={quote(wrong)}")
    page.wait_for_selector("#main .error")
    assert "nowhere" in page.inner_text("#main .error")
