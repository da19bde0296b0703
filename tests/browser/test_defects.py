"""What once went wrong on the page and must not again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from regard import look
from regard.demo import GLASS
from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched, downloads
from tests.browser.models import arranged

TIRED = "The animal didn't cross the street because it was too tired."


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("b=notjson", "not right"),
        ("b=null", "not right"),
        ("patch=null", "not right"),
        ("text=%20%20", "empty"),
        ("beam=0", "at least 1"),
    ],
)
def test_a_run_that_fails_leaves_the_sentence_to_be_corrected(
    watched: Watched, address: str, wrong: str, told: str
) -> None:
    watched.refusals = True
    page = watched.page
    page.goto(f"{address}#{wrong}")
    page.wait_for_selector("#main .error")
    assert told in page.inner_text("#main .error")
    assert page.input_value("#top input[name=beam]") == (
        "0" if "beam" in wrong else "5" if "text" not in wrong else "4"
    )
    assert page.locator("#tabs a").count() == 14


@pytest.mark.parametrize(
    "strange",
    [
        "layer=0.5&t=1.5&card=2.5",
        "view=constructor",
        "stack=constructor",
        "view=beam&x=node%3Dlength",
        "card=13&depth=3&x=column%3D-5",
    ],
)
def test_a_strange_address_shows_something(watched: Watched, address: str, strange: str) -> None:
    page = watched.open(f"{address}#{strange}")
    assert page.query_selector("#main .error") is None
    assert len(page.inner_text("#main")) > 500


@pytest.mark.usefixtures("needs_server")
def test_run_tries_again_after_a_failure(watched: Watched, address: str) -> None:
    watched.refusals = True
    page = watched.open(f"{address}#text={quote(TIRED)}")
    page.route("**/api/run", lambda route: route.abort())
    page.fill("#top input[name=text]", "The bear is tired.")
    page.click("#top button.run")
    page.wait_for_selector("#main .error")
    assert "does not answer" in page.inner_text("#main .error")
    page.unroute("**/api/run")
    page.click("#top button.run")
    page.wait_for_selector("#main article")
    assert "ours" in page.inner_text("#output")


def test_the_page_works_in_a_frame_of_a_notebook(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{look(GLASS, TIRED)._repr_html_()}", encoding="utf-8")
    context = browser.new_context()
    watched = Watched(context.new_page())
    watched.page.goto(path.as_uri())
    frame = watched.page.frame_locator("iframe")
    frame.locator("article.card").wait_for()
    frame.locator("[data-key=tab-head]").click()
    frame.locator(".stages").wait_for()
    context.close()
    assert watched.errors == []


def test_a_saved_drawing_has_every_column_and_its_colour_key(watched: Watched, address: str, tmp_path: Path) -> None:
    page = watched.open(f"{address}#view=beam&text={quote(TIRED)}")
    drawing = page.locator("#main figure .scroll svg").first.evaluate("each => each.width.baseVal.value")
    path = downloads(page, page.locator("#main figure button", has_text="SVG").first.click, tmp_path)
    assert float(re.findall(r'width="([\d.]+)"', path.read_text(encoding="utf-8"))[0]) >= drawing
    page = watched.open(f"{address}#view=weights")
    path = downloads(page, page.locator("#main figure button", has_text="SVG").first.click, tmp_path)
    assert path.read_text(encoding="utf-8").count('width="10.2"') == 9


def test_forcing_names_the_words(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=whatif&stack=encoder&layer=1&q=12&k=7&text={quote(TIRED)}")
    page.click("[data-key='if.force']")
    watched.settle()
    assert "query 12 ▁tired · key 7 ▁street" in page.inner_text("#main li")


def test_differences_of_rounding_are_shown_as_zero(watched: Watched, address: str) -> None:
    patch = [{"site": "encoder.layers.1.self_attention", "head": 0, "op": "zero"}]
    b = quote(json.dumps({"patch": json.dumps(patch)}))
    page = watched.open(f"{address}#view=head&layer=1&ab=diff&text={quote(TIRED)}&b={b}")
    assert "−1.00" in page.inner_text("#main .legend")  # all is 0, so the scale is the plain one
    page = watched.open(f"{address}#view=beam&ab=diff&text={quote(TIRED)}&b={b}")
    assert "this is A" in page.inner_text("#main .side")


def test_the_last_layer_hands_on_to_no_other(watched: Watched, serve: Callable[[Explorer], str]) -> None:
    page = watched.open(f"{serve(arranged('BERT'))}#card=15&layer=1&text={quote('The [MASK] ran.')}")
    assert "the last" in page.inner_text(".story")


def test_what_is_clicked_while_the_model_runs_does_not_lose_the_run(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=decoding&text=The+bear+is+tired.")
    page.evaluate("""() => {
      const text = "The animal didn't cross the street because it was too wide.";
      location.hash = "view=decoding&text=" + encodeURIComponent(text);
      setTimeout(() => document.querySelector("#playhead .chips button:nth-of-type(2)").click(), 0);
    }""")
    page.wait_for_selector("#output:text('elle était trop large')")
    assert "wide" in page.input_value("input[name=text]")
