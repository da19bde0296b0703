"""What a person sees first: a start that shows something, on a phone too, and the page as it is shown to a room."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, quote

import pytest
from playwright.sync_api import Browser, Page

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched
from tests.browser.models import SENTENCE, arranged

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")


def places(page: Page) -> dict[str, int]:
    """Returns the places that the address selects."""
    given = parse_qs(page.url.partition("#")[2])
    return {key: int(given.get(key, ["0"])[0]) for key in ("t", "q", "layer", "head")}


def test_the_start_shows_a_head_that_looks_at_another_word(watched: Watched, address: str, glass: Explorer) -> None:
    page = watched.open(f"{address}#text={quote(TIRED)}")
    run, at = glass.run({"text": TIRED}), places(page)
    step = run.answer["steps"][at["t"]]
    assert step["chosen"]["display"] == "▁fatigué"  # the last word that was written
    row = run[f"encoder.layers.{at['layer']}.self_attention.weights"][at["head"], at["q"]]
    key, tokens = int(row.argmax()), run.answer["tokens"]["source"]
    assert row[key] > 0.9
    assert abs(key - at["q"]) > 1
    assert tokens[key]["text"].isalpha()
    page.reload()
    watched.settle()
    assert places(page) == at
    page.fill("#top input[name=text]", WIDE)
    page.click("#top button.run")
    page.wait_for_selector("#output:text('large')")
    watched.settle()
    after = places(page)
    assert glass.run({"text": WIDE}).answer["steps"][after["t"]]["chosen"]["text"].strip() == "large"
    assert (after["layer"], after["head"]) == (at["layer"], at["head"])  # the head that one looks at stays


def test_a_link_to_the_first_place_stays_there(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#t=0&text={quote(TIRED)}")
    assert places(page) == {"t": 0, "q": 0, "layer": 0, "head": 0}
    assert "t=0" in page.url
    assert "▁The" in page.inner_text("#main .follow")


@pytest.mark.parametrize("name", ["GPT", "BERT", "classifier"])
def test_other_arrangements_start_at_what_was_written(
    watched: Watched, serve: Callable[[Explorer], str], name: str
) -> None:
    explorer = arranged(name)
    text = SENTENCE[explorer.describe()["task"]]
    page = watched.open(f"{serve(explorer)}#view=head&text={quote(text)}")
    answer, at = explorer.run({"text": text, "decode": {"beam": 4, "max_tokens": 64}}).answer, places(page)
    assert page.query_selector("#main .error") is None
    if name == "BERT":
        assert at["t"] == next(each["position"] for each in answer["steps"])  # the gap
    else:
        token = page.inner_text("#playhead .chips .here")
        assert at["t"] > 0
        assert re.search(r"\w", token)


@pytest.mark.parametrize(("width", "height"), [(390, 640), (320, 640)])
def test_on_a_phone_two_thirds_are_for_the_view(browser: Browser, address: str, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=True)
    watched = Watched(context.new_page())
    page = watched.open(f"{address}#view=head&text={quote(TIRED)}")
    top, bar = page.locator("#main").bounding_box(), page.locator("#playhead").bounding_box()
    assert top is not None
    assert bar is not None
    assert top["y"] + bar["height"] <= height / 3
    assert "fatigué" in page.inner_text("#output")
    assert not page.is_visible("[data-key=field-target]")
    assert page.get_by_label("Sentence").count() == 1  # its label is still read aloud
    page.click("[data-key=more]")
    assert page.is_visible("[data-key=field-target]")
    assert page.get_attribute("[data-key=more]", "aria-expanded") == "true"
    page.fill("#top input[name=text]", WIDE)
    page.click("#top button.run")
    page.wait_for_selector("#output:text('large')")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert watched.errors == []


def test_one_key_shows_the_page_to_a_room(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=head&text={quote(TIRED)}")
    size = "parseFloat(getComputedStyle(document.querySelector('#main .facts')).fontSize)"
    cell = "document.querySelector('#main .grid canvas').height"
    before = page.evaluate(size), page.evaluate(cell)
    drawn = page.get_attribute("body", "data-drawn")
    page.keyboard.press("p")
    page.wait_for_selector(f"body.presenting:not([data-drawn='{drawn}'])")
    watched.settle()
    assert page.evaluate(size) >= 20 > before[0]
    assert page.evaluate(cell) > before[1]
    assert not any(page.is_visible(each) for each in ("#top form", "#rail", "#playhead", ".ways"))
    assert page.is_visible("#tabs")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    layer = places(page)["layer"]
    page.keyboard.press("ArrowDown")
    watched.settle()
    assert places(page)["layer"] == layer - 1
    page.keyboard.press("p")
    page.wait_for_selector("body:not(.presenting)")
    page.wait_for_function(f"{size} < 18")
    assert page.is_visible("#top form")


@pytest.mark.parametrize("width", [390, 1280])
def test_numbers_and_code_of_a_card_are_visible(browser: Browser, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    watched = Watched(context.new_page())
    page = watched.open(f"{address}#card=8&depth=4&text={quote(TIRED)}")
    for title in ("Numbers", "Code"):
        assert page.locator("#main section h3", has_text=title).is_visible(), title
    assert page.locator("#main section pre").first.is_visible()
    context.close()
