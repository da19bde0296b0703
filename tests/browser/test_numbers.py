"""The numbers on the page are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched, downloads, shown
from tests.browser.models import ARRANGEMENTS, SENTENCE, arranged
from tests.cli.running import process

TIRED = "The animal didn't cross the street because it was too tired."


def table(page: Page) -> list[list[float]]:
    """The first figure that can be read as a table, read as one."""
    page.locator("figure button[aria-label^='as a table']").first.click()
    rows = page.locator("figure table").first.locator("tbody tr").all()
    read = lambda text: float(text.replace("−∞", "-inf").replace("∞", "inf").replace("−", "-"))  # noqa: E731
    return [[read(cell) for cell in row.locator("td").all_inner_texts()] for row in rows]


@pytest.mark.parametrize("name", list(ARRANGEMENTS))
def test_attention_of_every_arrangement_equals_pytorch(
    watched: Watched, serve: Callable[[Explorer], str], name: str
) -> None:
    explorer = arranged(name)
    shape = explorer.describe()
    address, text = serve(explorer), SENTENCE[shape["task"]]
    for stack, parts in shape["stacks"].items():
        for kind in parts["kinds"]:
            for stage in ("scores", "masked", "weights"):
                place = f"stack={stack}&kind={kind}&layer=1&head=1&stage={stage}"
                page = watched.open(f"{address}#view=head&{place}&text={quote(text)}")
                expected = shown(explorer, page)[f"{stack}.layers.1.{kind}.{stage}"][1].tolist()
                found = table(page)
                assert len(found) == min(len(expected), 2000 // len(expected[0]))  # as many as a table holds
                for seen, given in zip(found, expected, strict=False):
                    assert seen == pytest.approx(given, abs=5.1e-4), (stack, kind, stage)


@pytest.mark.parametrize("name", list(ARRANGEMENTS))
def test_every_card_of_the_journey_is_recomputed(watched: Watched, serve: Callable[[Explorer], str], name: str) -> None:
    explorer = arranged(name)
    task = explorer.describe()["task"]
    page = watched.open(f"{serve(explorer)}#layer=1&head=1&q=2&t=2&depth=3&text={quote(SENTENCE[task])}")
    receipts: dict[str, float] = {}
    last = ""
    while page.inner_text("#main h2") != last:
        last = page.inner_text("#main h2")
        for each in page.query_selector_all("[data-receipt]"):
            receipts[each.get_attribute("data-receipt") or ""] = float(each.get_attribute("data-delta") or "inf")
            assert "good" in (each.get_attribute("class") or ""), (last, each.inner_text())
        page.keyboard.press("ArrowRight")
        watched.settle()
    assert len(receipts) >= (8 if task in ("fill", "classify") else 12), receipts
    assert max(receipts.values()) < 1e-3
    assert any(delta > 0 for delta in receipts.values()), "nothing is ever bit-identical in another order of sums"


def test_a_number_is_traced_back_to_the_embedding_table(watched: Watched, address: str, glass: Explorer) -> None:
    page = watched.open(f"{address}#text={quote(TIRED)}")
    run = shown(glass, page)
    chosen = run.answer["steps"][3]["chosen"]["id"]
    page = watched.open(f"{address}#view=microscope&text={quote(TIRED)}&cell=logits:3,{chosen}")
    assert page.locator(".receipt.good").count() >= 1
    assert f"{run['logits'][3, chosen].item():.2f}"[:-1] in page.inner_text("#main").replace("−", "-")


@pytest.mark.usefixtures("needs_server")
def test_the_saved_page_shows_the_same_numbers_without_a_server(
    watched: Watched, browser: Browser, address: str, tmp_path: Path
) -> None:
    saved = tmp_path / "page.html"
    done = process("look", "glass", "--text", TIRED, "-o", str(saved))
    assert done.code == 0, done.err
    place = "view=head&stack=decoder&kind=cross_attention&layer=1&head=1&stage=weights"
    live = table(watched.open(f"{address}#{place}&text={quote(TIRED)}"))
    context = browser.new_context(offline=True)
    other = Watched(context.new_page())
    page = other.open(f"{saved.as_uri()}#{place}")
    assert table(page) == live
    for view in ("journey", "atlas", "microscope", "decoding", "beam", "lens", "positions", "weights", "alignment"):
        other.open(f"{saved.as_uri()}#view={view}")
        assert page.query_selector("#main .error") is None, (view, page.inner_text("#main"))
    assert {url.split(":")[0] for url in other.requests} <= {"file", "data", "blob", "about"}
    context.close()
    assert other.errors == []


def test_figures_are_saved_as_svg_and_png(watched: Watched, address: str, tmp_path: Path) -> None:
    page = watched.open(f"{address}#view=head&text={quote(TIRED)}")
    drawing = downloads(page, lambda: page.locator("figure button[aria-label^=SVG]").first.click(), tmp_path)
    assert drawing.read_text(encoding="utf-8").count("<rect") > 50
    picture = downloads(page, lambda: page.locator("figure button[aria-label^=PNG]").first.click(), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("needs_server")
def test_copied_python_makes_the_tensor_that_is_shown(watched: Watched, address: str, tmp_path: Path) -> None:
    page = watched.open(f"{address}#view=head&layer=1&head=1&stage=weights&text={quote(TIRED)}")
    found = table(page)
    code = page.locator("figure button[aria-label^='copy as Python']").first.get_attribute("title") or ""
    scope: dict[str, object] = {}
    *lines, last = code.strip().splitlines()
    exec("\n".join(lines), scope)  # noqa: S102
    tensor = eval(last, scope)  # noqa: S307
    assert tensor.shape == (len(found), len(found[0]))
    for seen, given in zip(found, tensor.tolist(), strict=True):
        assert seen == pytest.approx(given, abs=5.1e-4)
