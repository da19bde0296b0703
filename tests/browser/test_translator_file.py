"""`regard export --to page`: one file that translates in a real browser, without the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from regard.cli import main
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.demo import GLASS
from regard.demo.sentence_generator import generate_splits
from regard.errors import InputError, ModelError
from regard.interop import page as export
from regard.model_folder import read_settings
from regard.weights import read_folder
from tests.browser.conftest import Watched

AROUND = 300_000
"""The most bytes of a page beside its weights."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "translate.html"
    assert main(["export", str(GLASS), "--to", "page", "-o", str(path)]) == 0
    return path


@pytest.fixture
def offline(watched: Watched, file: Path) -> Iterator[Page]:
    watched.page.context.set_offline(True)
    watched.page.goto(file.as_uri())
    watched.page.wait_for_selector("body[data-ready]")
    yield watched.page
    assert {address.split(":")[0] for address in watched.requests} <= {"file", "blob"}


def translate(page: Page, text: str) -> str:
    """Types a text, and waits until it is translated."""
    before = page.get_attribute("body", "data-done")
    page.fill("#text", text)
    page.wait_for_selector(f"body[data-done]:not([data-done='{before}']):not([aria-busy])")
    return page.input_value("#made")


def test_translations_are_those_of_the_native_engine(offline: Page) -> None:
    texts = [pair.source for pair in generate_splits(600, 5, 30).train][:300]
    translator = load_as(Translator, GLASS, engine="native", precision="int8")
    expected = [each.text for each in translator.translate(texts)]
    assert translate(offline, "\n".join(texts)).split("\n") == expected
    assert len(set(expected)) > 100


def test_lines_and_long_lines_are_cut_as_by_the_translator(offline: Page) -> None:
    text = (
        "\n\n  The dog sleeps.\r\n\tThe cat eats, and the dog sleeps. "
        + "The dog didn't cross the street. " * 20
        + "\n"
    )
    expected = load_as(Translator, GLASS, engine="native", precision="int8")(text)
    assert translate(offline, text) == expected.replace("\r\n", "\n")  # as text fields do


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The dog {name} sleeps.", ["{name}"]),
        ("The %s dog <b>sleeps</b> and the cat %d eats.", ["%s", "<b>", "</b>", "%d"]),
        ("{}", ["{}"]),
        ("See https://example.org/a_(b) &amp; the ${cat}!", ["https://example.org/a_(b)", "&amp;", "${cat}"]),
    ],
)
def test_placeholders_are_kept(offline: Page, text: str, pieces: list[str]) -> None:
    made = translate(offline, text)
    assert [made.count(piece) for piece in pieces] == [text.count(piece) for piece in pieces]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_small_screen(
    browser: Browser, file: Path, scheme: str, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 640}, color_scheme=scheme, offline=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    translate(page, "The dog didn't cross the street. " * 5)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:100]) for each in found] == []
    assert page.text_content("#languages") == "en → fr"
    assert "Nothing leaves this machine" in (page.text_content("footer") or "")
    context.close()


def test_a_damaged_page_says_so(browser: Browser, file: Path, tmp_path: Path) -> None:
    model = export.packed_model(read_folder(GLASS))
    damaged = bytearray(model)
    damaged[5000] ^= 1
    settings = read_settings(GLASS)
    text = export.page_of("glass", settings, bytes(damaged), (GLASS / "tokenizer.json").read_bytes())
    (tmp_path / "damaged.html").write_text(text)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "damaged.html").as_uri())
    page.wait_for_selector("#message:not([hidden])")
    assert page.text_content("#message") == "this model cannot be used: is damaged"
    context.close()


def test_a_page_is_small_beside_its_weights_and_always_the_same(file: Path, tmp_path: Path) -> None:
    export.export_model(GLASS, tmp_path / "translate.html")
    assert (tmp_path / "translate.html").read_bytes() == file.read_bytes()
    text = file.read_text()
    model = re.search(r'"model": "([^"]*)"', text)
    assert model is not None
    assert len(text.encode()) - len(model[1]) < AROUND
    assert "connect-src" not in text
    assert "default-src 'none'" in text


def test_other_outputs_and_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"ends in \.html"):
        export.export_model(GLASS, tmp_path / "page")
    (tmp_path / "a.html").write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        export.export_model(GLASS, tmp_path / "a.html")
    export.export_model(GLASS, tmp_path / "a.html", overwrite=True)
    monkeypatch.setattr(export, "MOST_BYTES", 10_000)
    with pytest.raises(InputError, match=r"has 0 MB in int8; a page holds at most 0 MB"):
        export.export_model(GLASS, tmp_path / "b.html")
    settings = read_settings(GLASS)
    monkeypatch.setattr(export, "read_settings", lambda _: replace(settings, task="write"))
    with pytest.raises(ModelError, match="a model that translates, but the task of this one is write"):
        export.export_model(GLASS, tmp_path / "b.html")
