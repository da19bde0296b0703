"""The view of one head: colours on long sentences, lines beside the heat map, and several heads over each other."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched

TIRED = "The animal didn't cross the street because it was too tired."
LONG = f"{TIRED} {TIRED} {TIRED}"

STRONGEST = """(canvas, [left, top, size, rows, columns]) => {
  const ratio = canvas.width / parseFloat(canvas.style.width), brush = canvas.getContext("2d");
  const pixel = (x, y) => brush.getImageData(x * ratio, y * ratio, 1, 1).data.slice(0, 3);
  const light = (i, j) => pixel(left + (j + .3) * size, top + (i + .3) * size).reduce((a, b) => a + b) / 3;
  return Array.from({length: rows}, (_, i) => Math.min(...Array.from({length: columns}, (_, j) => light(i, j))));
}"""


def darkest_of_each_row(page: Page, rows: int, columns: int) -> list[float]:
    """Returns the brightness of the strongest colour of each row of the heat map."""
    grid = page.locator("#main [role=grid]").first
    cell = grid.locator("[role=gridcell]")
    place = {name: cell.evaluate(f"each => parseFloat(each.style.{name})") for name in ("left", "top", "width")}
    row, column = (int(cell.get_attribute(f"aria-{name}index") or 1) - 1 for name in ("row", "col"))
    size = place["width"]
    corner = [place["left"] - column * size, place["top"] - row * size, size, rows, columns]
    found: list[float] = grid.locator("canvas").first.evaluate(STRONGEST, corner)
    return found


def test_each_row_of_a_long_sentence_has_a_strong_colour(watched: Watched, address: str, glass: Explorer) -> None:
    place = f"view=head&layer=1&head=1&text={quote(LONG)}"
    page = watched.open(f"{address}#{place}")
    size = len(glass.run({"text": LONG})["encoder.layers.1.self_attention.weights"][1])
    assert "largest of its row" in page.inner_text("#main .legend")
    assert max(darkest_of_each_row(page, size, size)) < 80
    page.select_option("[data-key=choice-colours]", "one")
    watched.settle()
    assert re.search(r"0\.00\s*1\.00", page.inner_text("#main .legend"))
    assert max(darkest_of_each_row(page, size, size)) > 150  # as it was: rows that share their attention are pale
    page.select_option("[data-key=choice-colours]", "range")
    watched.settle()
    darkest = darkest_of_each_row(page, size, size)
    assert min(darkest) < 80 < max(darkest)


def test_a_short_sentence_keeps_one_scale_and_pictures_follow_the_choice(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#view=atlas&text={quote(TIRED)}")
    assert re.search(r"0\.00\s*1\.00", page.inner_text("#main .legend"))
    strength = "all => all.map(each => [...each.getContext('2d').getImageData(0, 0, each.width, each.height).data]"
    strength += ".filter((_, i) => i % 4 == 0).sort((a, b) => a - b)[0])"
    before = page.locator("#main .thumbnail").evaluate_all(strength)
    page.select_option("[data-key=choice-colours]", "range")
    watched.settle()
    assert "largest of the picture" in page.inner_text("#main .legend")
    after = page.locator("#main .thumbnail").evaluate_all(strength)
    assert max(before) > max(after) == min(after)  # the strongest colour is now in every picture


@pytest.mark.parametrize(("width", "text", "beside"), [(1280, TIRED, True), (1920, LONG, True), (390, TIRED, False)])
def test_lines_are_beside_the_heat_map_where_there_is_room(
    browser: Browser, address: str, width: int, text: str, beside: bool
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    watched = Watched(context.new_page())
    page = watched.open(f"{address}#view=head&layer=1&text={quote(text)}")
    heat, lines = (page.locator(f"#main {each}").first.bounding_box() for each in (".mapped", ".lines"))
    assert heat is not None
    assert lines is not None
    assert (lines["x"] >= heat["x"] + heat["width"] and lines["y"] < heat["y"] + 60) == beside
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert watched.errors == []


def test_several_heads_lie_over_each_other_in_their_colours(watched: Watched, address: str, glass: Explorer) -> None:
    page = watched.open(f"{address}#view=head&layer=1&q=10&text={quote(TIRED)}")
    assert page.locator("[data-head]").count() == 0
    page.click("[data-key=overlay-1]")
    watched.settle()
    page.click("[data-key=overlay-0]")
    watched.settle()
    weights = glass.run({"text": TIRED})["encoder.layers.1.self_attention.weights"]
    fills = set()
    for head in (0, 1):
        squares = page.locator(f"rect[data-head='{head}']")
        shares = [float(each.get_attribute("fill-opacity") or 0) for each in squares.all()]
        assert shares == pytest.approx(weights[head, 10].tolist(), abs=6e-4)
        fills.add(squares.first.get_attribute("fill"))
    assert len(fills) == 2
    page.locator("#main .lines").last.locator("text", has_text="▁tired").first.click()
    watched.settle()
    assert "q=12" in page.url
    assert "where ▁tired looks" in page.inner_text("#main")
