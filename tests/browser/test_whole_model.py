"""The picture that moves: every moment from the first embedding to the end sign, played, stepped and opened."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched
from tests.browser.models import SENTENCE, arranged
from tests.browser.test_page import TIRED


def shown(page: Page, stack: str) -> int:
    """Returns how many vectors of a stack are visible."""
    return page.locator(f"[data-stack={stack}] .vector.on").count()


def test_the_sentence_rises_crosses_over_and_is_written(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=whole&text={quote(TIRED)}")
    expect(page.locator(".narration")).to_contain_text("Each token becomes a vector")
    columns = page.locator("[data-stack=encoder] .wholetoken").count()
    steps = page.locator("[data-stack=decoder] .wholetoken").count()
    forward = page.get_by_label("one step forward")
    assert (shown(page, "encoder"), shown(page, "decoder")) == (columns, 0)
    forward.click()
    forward.click()
    assert shown(page, "encoder") == 3 * columns
    forward.click()
    expect(page.locator(".narration")).to_contain_text("cross over")
    assert page.locator(".links path").count() == columns
    forward.click()
    assert shown(page, "decoder") == 3
    assert page.locator(".links path").count() > 0
    forward.click()
    expect(page.locator(".candidates .marked")).to_contain_text("L")
    for _ in range(2 * (steps - 1)):
        forward.click()
    expect(page.locator(".narration")).to_contain_text("the output is complete")
    assert shown(page, "decoder") == 3 * steps
    forward.click()  # nothing follows
    expect(page.locator(".narration")).to_contain_text("the output is complete")
    page.get_by_label("to the beginning").click()
    assert shown(page, "decoder") == 0


def test_it_plays_pauses_and_opens_a_card(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=whole&text={quote(TIRED)}")
    page.locator(".controls select").select_option("fast")
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press(" ")
    expect(page.locator(".whole")).to_have_attribute("data-frame", re.compile(r"^([5-9]|\d\d)$"))
    page.get_by_role("button", name="Pause").click()
    frame = page.locator(".whole").get_attribute("data-frame")
    page.wait_for_timeout(700)
    assert page.locator(".whole").get_attribute("data-frame") == frame
    page.locator("[data-stack=encoder] [data-stage='2'] [data-column='9'].vector").click()
    expect(page).to_have_url(re.compile("layer=1"))
    expect(page).to_have_url(re.compile("q=9"))
    watched.settle()
    assert page.locator("#main h2").count() == 1  # a card of the journey


def test_without_motion_it_starts_with_everything_shown(browser: Browser, address: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    watched = Watched(context.new_page())
    page = watched.open(f"{address}#view=whole&text={quote(TIRED)}")
    expect(page.locator(".narration")).to_contain_text("the output is complete")
    context.close()


@pytest.mark.parametrize("name", ["GPT", "BERT", "classifier"])
def test_other_models_have_their_own_picture(watched: Watched, serve: Callable[[Explorer], str], name: str) -> None:
    explorer = arranged(name)
    text = SENTENCE[explorer.describe()["task"]]
    page = watched.open(f"{serve(explorer)}#view=whole&text={quote(text)}")
    last = int(page.locator(".whole").get_attribute("data-frames") or 0) - 1
    assert last > 1
    page.locator(".controls input").fill(str(last))
    expect(page.locator(".whole")).to_have_attribute("data-frame", str(last))
    assert page.locator(".vector.on").count() == page.locator(".vector").count()
