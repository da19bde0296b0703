"""The table of positions: in halves, in few rows, and as wide as the screen."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest

from regard.explorer import embedding_space as space
from regard.explorer.model_explorer import Explorer
from tests.browser import models
from tests.browser.conftest import Watched
from tests.browser.models import arranged
from tests.browser.test_numbers import table

TIRED = "The animal didn't cross the street because it was too tired."


def test_the_table_in_halves_has_sines_then_cosines(watched: Watched, address: str, glass: Explorer) -> None:
    page = watched.open(f"{address}#view=positions&text={quote(TIRED)}")
    rows = space.positions(glass.anatomy, "source", 64)[1]
    assert rows is not None
    page.select_option("[data-key=choice-positions]", "20")
    watched.settle()
    page.check("[data-key^='tick-in halves']")
    watched.settle()
    cell = page.locator("#main [role=gridcell]").first
    cell.focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert "(column 1)" in (cell.get_attribute("aria-label") or "")  # the first cosine
    page.keyboard.press("Enter")
    watched.settle()
    assert page.input_value("[data-key=column]") == "1"
    found = table(page)
    assert len(found) == 20
    for seen, given in zip(found, rows, strict=False):
        assert seen == pytest.approx([*given[0::2].tolist(), *given[1::2].tolist()], abs=5.1e-4)


def test_a_wide_table_fits_the_screen(
    watched: Watched, serve: Callable[[Explorer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models.ARRANGEMENTS, "wide", ("translate", {"width": 512, "heads": 8}))
    page = watched.open(f"{serve(arranged('wide'))}#view=positions&max_tokens=2&x=rows%3D20&text=The+dog")
    scroll = page.locator("#main .scroll").first
    assert scroll.evaluate("each => each.scrollWidth <= each.clientWidth")
    grid = page.locator("#main [role=grid]").first
    assert grid.get_attribute("aria-colcount") == "512"
    box = grid.bounding_box()
    assert box is not None
    assert box["width"] > 700
