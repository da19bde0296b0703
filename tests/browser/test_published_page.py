"""A published page: models that run in the browser, from a host of plain files, without a network after loading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from regard.explorer.model_explorer import Explorer
from regard.explorer.published_site import publish
from tests.browser.conftest import Watched, static_host
from tests.browser.models import SENTENCE, arranged
from tests.browser.test_page import VIEWS

WIDE = "The animal didn't cross the street because it was too wide."
WRONG = '[{"site": "nowhere", "op": "zero"}]'
CHECKPOINT = "%7B%22checkpoint%22%3A%22step-00000800%22%7D"


@pytest.fixture(scope="module")
def site(glass: Explorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The glass model, a GPT and a BERT, below a path of a host."""
    folder = tmp_path_factory.mktemp("host")
    publish([glass, arranged("GPT"), arranged("BERT")], folder / "models" / "of school")
    with static_host(folder) as host:
        yield f"{host}models/of%20school/"


def test_every_view_works_without_a_network_after_loading(browser: Browser, site: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context.new_page())
    page = watched.open(site)
    page.wait_for_selector("body[data-complete]")
    assert {url for url in watched.requests if not url.startswith((site, "data:", "blob:", "about:"))} == set()
    context.set_offline(True)
    for view in VIEWS:
        watched.open(f"{site}#view={view}&text={quote(WIDE)}&layer=1")
        page.wait_for_selector("#main figure, .whole", state="attached")
        assert page.query_selector("#main .error") is None, (view, page.inner_text("#main"))
        assert len(page.inner_text("#main")) > 100, view
    assert page.inner_text("#output") == "L'animal n'a pas traversé la rue parce qu'elle était trop large."
    watched.open(f"{site}#view=head&text={quote(WIDE)}&ab=both&b={CHECKPOINT}&lang=zh")
    assert page.query_selector("#main .error") is None
    context.close()
    assert watched.errors == []


def test_the_engine_is_compared_with_pytorch(watched: Watched, site: str) -> None:
    for address in (site, f"{site}models/GPT/", f"{site}models/BERT/"):
        page = watched.open(address)
        page.click("[data-key=compare]")
        page.wait_for_selector(".ways .note:has-text('Largest difference')")
        assert "✓" in page.inner_text(".ways .note")


def test_a_page_offers_the_other_models(watched: Watched, site: str) -> None:
    page = watched.open(site)
    names = page.locator(".brand select option")
    assert names.all_inner_texts() == ["glass_model", "GPT", "BERT"]
    for name, task in (("GPT", "write"), ("BERT", "fill")):
        address = f"{site}models/{name}/"
        watched.open(f"{address}#text={quote(SENTENCE[task])}&view=atlas")
        assert page.query_selector("#main .error") is None, page.inner_text("#main")
        links = page.locator(".brand select option").evaluate_all("all => all.map((each) => each.value)")
        assert links[0] == "../../"
        assert links[["GPT", "BERT"].index(name) + 1] == "./"


def test_a_mistake_is_answered_in_words(watched: Watched, site: str) -> None:
    watched.page.goto(f"{site}#text=Hello&patch={quote(WRONG)}")
    watched.page.wait_for_selector("#main .error")
    assert "nowhere" in watched.page.inner_text("#main .error")


def test_a_missing_file_is_named(browser: Browser, glass: Explorer, tmp_path: Path) -> None:
    publish([glass], tmp_path / "site")
    (tmp_path / "site" / "models" / "glass_model" / "weights.safetensors").unlink()
    with static_host(tmp_path / "site") as host:
        context = browser.new_context()
        page = context.new_page()
        page.goto(host)
        page.wait_for_selector("#main .error")
        assert "weights.safetensors" in page.inner_text("#main .error")
        context.close()
