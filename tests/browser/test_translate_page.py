"""What a person at the page of `regard serve` meets: a text, a file, an error, on any screen and by keyboard alone."""

from __future__ import annotations

import re
import time
from asyncio import Event
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from regard.demo import GLASS
from regard.serving.application import create_app
from regard.serving.client_limits import KeyFile, ServingLimits, make_key
from regard.serving.refusals import BusyError
from regard.serving.served_models import Models
from regard.tokens.language_directions import Direction
from tests.browser.conftest import Watched, downloads
from tests.serving.fakes import FakeModels, FakeQueue
from tests.serving.running import running

ENGLISH = "The children are playing in the garden with their father."
GERMAN = "Die Kinder spielen mit ihrem Vater im Garten und die Mutter liest."
CATALOGUE = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "The dog sleeps, %s."
msgstr ""

msgid "A cat"
msgstr "Un chat"
"""


@pytest.fixture(scope="module")
def models() -> FakeModels:
    return FakeModels("en-de", "de-en", "en-fr", "en-ar")


@pytest.fixture(scope="module")
def server(models: FakeModels) -> Iterator[str]:
    with running(create_app(models, ServingLimits(characters=2000))) as address:
        yield address


def write(watched: Watched, text: str) -> str:
    """Puts a text in and waits for its translation."""
    watched.page.fill("#text", text)
    watched.page.press("#text", "Control+Enter")
    watched.settle()
    return watched.page.input_value("#made")


def test_a_text_is_translated_when_one_stops_typing(watched: Watched, server: str, models: FakeModels) -> None:
    page, queue = watched.open(server), models.fakes[Direction("en", "de")]
    expect(page.locator("#text")).to_be_focused()
    before = len(queue.calls)
    page.keyboard.type("The dog and the cat", delay=5)
    expect(page.locator("#made")).to_have_value("THE DOG AND THE CAT@de")
    watched.settle()
    assert len(queue.calls) < before + 10  # not one for each key: typing may be slow
    assert page.get_attribute("#made", "lang") == "de"
    assert re.fullmatch(r"Detected: English, \d+%", page.inner_text("#detected"))
    assert page.inner_text("#count") == "19 / 2,000"
    assert {urlsplit(url).netloc for url in watched.requests} == {urlsplit(server).netloc}
    page.click("#clear")
    assert (page.input_value("#made"), page.inner_text("#detected")) == ("", "")
    page.keyboard.press("Control+z")
    expect(page.locator("#made")).to_have_value("THE DOG AND THE CAT@de")


def test_languages_are_chosen_and_swapped_where_both_ways_are_served(watched: Watched, server: str) -> None:
    page = watched.open(server)
    assert page.locator("#source option").all_inner_texts() == ["Detect language", "English", "German"]
    assert page.is_disabled("#swap")
    assert write(watched, ENGLISH).endswith("@de")
    page.select_option("#target", "fr")
    watched.settle()
    assert page.input_value("#made").endswith("@fr")
    assert page.is_disabled("#swap")
    assert page.get_attribute("#swap", "aria-label") == "Nothing here translates from French into English"
    page.select_option("#target", "de")
    watched.settle()
    page.click("#swap")
    watched.settle()
    assert page.input_value("#text") == f"{ENGLISH.upper()}@de"
    assert page.input_value("#made").endswith("@DE@en")
    assert (page.input_value("#source"), page.input_value("#target")) == ("de", "en")
    assert page.locator("#target option").all_inner_texts() == ["English"]
    page.reload()
    watched.settle()
    assert (page.input_value("#source"), page.input_value("#target")) == ("de", "en")
    page.select_option("#source", "auto")
    page.select_option("#target", "de")
    assert write(watched, GERMAN) == GERMAN
    assert "German already" in page.inner_text("#detected")
    write(watched, "ยินดีต้อนรับ")
    assert page.inner_text("#detected") == "Language not recognised, taken as English"


def test_alternatives_are_shown_on_request_and_any_can_be_copied(browser: Browser, server: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    watched = Watched(context.new_page())
    page = watched.open(server)
    write(watched, "the <b>dog</b>")
    assert page.is_hidden("#others")
    page.click("#alternatives")
    watched.settle()
    others = page.locator("#others button")
    assert others.all_inner_texts() == [] or all("<B>DOG</B>" in text for text in others.all_inner_texts())
    write(watched, "the dog")
    assert others.all_inner_texts() == ["THE DOG 0@de", "THE DOG 1@de", "THE DOG 2@de"]
    others.nth(1).click()
    assert page.input_value("#made") == "THE DOG 1@de"
    assert others.nth(1).inner_text() == "THE DOG@de"
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "THE DOG 1@de"
    page.click("#alternatives")
    assert page.is_hidden("#others")
    page.evaluate("navigator.clipboard.writeText = undefined")  # as without TLS
    write(watched, "the cat")
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "THE CAT@de"
    context.close()
    assert watched.errors == []


def test_a_request_is_given_up_when_more_is_typed(watched: Watched, server: str, models: FakeModels) -> None:
    page, queue = watched.open(server), models.fakes[Direction("en", "de")]
    queue.hold, before = Event(), (len(queue.calls), queue.cancelled)
    page.fill("#text", "the first")
    page.keyboard.press("Control+Enter")
    until(lambda: len(queue.calls) > before[0])
    queue.hold = None
    assert write(watched, "the second") == "THE SECOND@de"
    until(lambda: queue.cancelled == before[1] + 1)


def until(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not claim() and time.monotonic() < end:
        time.sleep(0.01)
    assert claim()


def test_errors_are_told_in_place_and_one_can_try_again(watched: Watched, server: str, models: FakeModels) -> None:
    watched.refusals = True
    page, queue = watched.open(server), models.fakes[Direction("en", "de")]
    message = page.locator("#message")
    write(watched, "a " * 1001)
    assert "2,002 characters, and at most 2,000" in message.inner_text()
    assert page.get_attribute("#text", "aria-invalid") == "true"
    queue.error = BusyError("too much", 1.0)
    write(watched, ENGLISH)
    expect(message).to_contain_text("asked again in 1 s")
    queue.error = None
    expect(page.locator("#made")).to_have_value(f"{ENGLISH.upper()}@de")  # of itself
    assert message.is_hidden()
    page.route("**/translate", lambda route: route.abort())
    write(watched, "the dog")
    assert message.inner_text() == "No connection to the server. Try again"
    page.unroute("**/translate")
    message.get_by_role("button").click()
    expect(page.locator("#made")).to_have_value("THE DOG@de")
    page.route("**/translate", lambda route: route.fulfill(status=400, body='{"error": "Invalid request: <i>no</i>"}'))
    write(watched, "the cat")
    assert message.inner_text() == "The server refused this: <i>no</i>"
    assert page.input_value("#made") == ""
    page.select_option("#source", "en")
    page.click("#swap")
    assert page.input_value("#text") == "the cat"  # there is nothing to put there instead


def test_a_server_without_translators_or_without_connection_says_so(watched: Watched) -> None:
    watched.refusals = True
    with running(create_app(FakeModels())) as address:
        page = watched.open(address)
        assert "No model that translates" in page.inner_text("#trouble")
        page.route("**/languages", lambda route: route.abort())
        page = watched.open(address)
        assert "No connection" in page.inner_text("#trouble")


def test_a_key_is_asked_for_where_one_is_needed(watched: Watched, tmp_path: Path) -> None:
    watched.refusals = True
    key = make_key(tmp_path / "keys.txt", "me")
    with running(create_app(FakeModels("en-de"), keys=KeyFile(tmp_path / "keys.txt"))) as address:
        page = watched.open(address)
        assert page.input_value("#source") == "en"  # the only one
        expect(page.locator("#key-value")).to_be_focused()
        write(watched, "dog")
        assert "enter yours" in page.inner_text("#message")
        page.fill("#key-value", "wrong")
        page.press("#key-value", "Enter")
        expect(page.locator("#message")).to_contain_text("not valid")
        page.fill("#key-value", key)
        page.press("#key-value", "Enter")
        expect(page.locator("#made")).to_have_value("DOG@de")
        assert page.get_attribute("#key-value", "aria-invalid") is None
        page.reload()
        watched.settle()
        assert write(watched, "cat") == "CAT@de"
        assert page.evaluate("localStorage.length") == 0
        assert not any(key in url for url in watched.requests)


def test_a_file_is_sent_and_its_translation_saved_by_a_real_model(watched: Watched, tmp_path: Path) -> None:
    source = tmp_path / "app.po"
    source.write_text(CATALOGUE, encoding="utf-8")
    with running(create_app(Models.load([str(GLASS)]))) as address:
        page = watched.open(address)
        assert write(watched, "the dog sleeps.") not in ("", "the dog sleeps.")
        page.click("#tab-file")
        assert ".po" in page.inner_text("#formats")
        page.set_input_files("#choose", {"name": "a.exe", "mimeType": "", "buffer": b"MZ"})
        assert "a.exe: files of this format are not translated" in page.inner_text("#file-message")
        page.set_input_files("#choose", source)
        assert page.is_hidden("#file-message")
        page.click("#send")
        page.wait_for_selector("#result:not([hidden])")
        assert page.inner_text("#result") == "Download app_fr.po"
        expect(page.locator("#result")).to_be_focused()
        saved = downloads(page, lambda: page.click("#result"), tmp_path).read_text(encoding="utf-8")
    assert re.search(r'msgid "The dog sleeps, %s."\nmsgstr "[^"]*%s[^"]*"', saved), saved
    assert 'msgstr "Un chat"' in saved


DROP = """(name) => {
  const data = new DataTransfer();
  data.items.add(new File(["A dog."], name));
  document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def test_a_file_is_dropped_refused_and_stopped(watched: Watched, server: str, models: FakeModels) -> None:
    watched.refusals = True
    page = watched.open(server)
    page.evaluate(DROP, "notes.txt")
    assert page.is_visible("#panel-file")
    assert page.inner_text("#file-name") == "notes.txt"
    expect(page.locator("#send")).to_be_focused()
    page.route("**/translate_file", lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, body="{}"))
    page.click("#send")
    expect(page.locator("#file-message")).to_have_text("The server is busy: try again in 7 s. Try now")
    page.unroute("**/translate_file")
    queue = models.fakes[Direction("en", "de")]
    queue.hold, before = Event(), len(queue.calls)
    page.get_by_role("button", name="Try now").click()
    until(lambda: len(queue.calls) > before)
    expect(page.locator("#file-status")).to_contain_text("Translating the file")
    page.click("#stop")
    expect(page.locator("#file-status")).to_have_text("Cancelled.")
    queue.hold = None
    expect(page.locator("#send")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#result")).to_have_text("Download notes_de.txt")


def test_everything_is_done_by_keyboard(watched: Watched, server: str, tmp_path: Path) -> None:
    page = watched.open(server)
    page.on("filechooser", lambda _: None)  # so that the browser knows long before that it opens none of its own
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type(ENGLISH)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#made")).to_have_value(f"{ENGLISH.upper()}@de")
    watched.settle()
    reached = [page.evaluate("document.activeElement.id")]
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.localName"))
    assert reached[:5] == ["text", "clear", "made", "alternatives", "copy"]
    assert {"tab-text", "a", "source", "swap", "target"} <= set(reached)
    page.focus("#tab-text")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-file")).to_be_focused()
    assert page.is_hidden("#panel-text")
    page.focus("#target")
    page.keyboard.press("Tab")
    expect(page.locator("#choose")).to_be_focused()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files({"name": "a.txt", "mimeType": "", "buffer": b"A dog and a cat."})
    expect(page.locator("#send")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#result")).to_be_focused()
    name = downloads(page, lambda: page.keyboard.press("Enter"), tmp_path).name
    assert name == "a_de.txt"
    page.focus("#target")
    page.keyboard.press("F")
    expect(page.locator("#target")).to_have_value("fr")
    expect(page.locator("#target")).to_be_focused()
    expect(page.locator("#send")).to_be_visible()  # for the other language


@pytest.mark.parametrize("how", ["light", "dark", "forced"])
def test_the_page_has_no_serious_accessibility_faults(browser: Browser, server: str, how: str) -> None:
    context = browser.new_context(
        color_scheme="dark" if how == "dark" else "light",
        forced_colors="active" if how == "forced" else "none",
        reduced_motion="reduce",
    )
    watched, found = Watched(context.new_page()), []
    page = watched.open(server)
    ground = [
        int(part) for part in re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
    ]
    assert how == "forced" or (max(ground[:3]) < 60) == (how == "dark")
    page.click("#alternatives")
    for state in (ENGLISH,) if how == "forced" else (ENGLISH, "a " * 1001, None):
        if state is None:
            page.click("#tab-file")
            page.set_input_files("#choose", {"name": "a.txt", "mimeType": "", "buffer": b"A dog."})
        else:
            write(watched, state)
        found += serious(page)
    context.close()
    assert found == []
    assert watched.errors == []


def serious(page: Page) -> list[tuple[str, list[str]]]:
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in Axe().run(page).response["violations"]
        if each["impact"] in ("moderate", "serious", "critical")
    ]


def test_the_page_fits_a_phone_in_chinese_and_with_right_to_left_text(browser: Browser, server: str) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 640}, has_touch=True, locale="zh-CN")
    watched = Watched(context.new_page())
    page = watched.open(server)
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.locator("#source option").all_inner_texts() == ["检测语言", "英语", "德语"]
    page.select_option("#target", "ar")
    page.click("#alternatives")
    for text in (ENGLISH * 5, "word" * 100, "مرحبا بكم في هذا المكان"):
        write(watched, text)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.evaluate("getComputedStyle(document.querySelector('#text')).direction") == "rtl"
    source, made = page.locator("#text").bounding_box(), page.locator("#made").bounding_box()
    assert source
    assert made
    assert made["y"] >= source["y"] + source["height"]
    page.click("#tab-file")
    page.set_input_files("#choose", {"name": f"{'long' * 30}.txt", "mimeType": "", "buffer": b"A dog."})
    page.click("#send")
    page.wait_for_selector("#result:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    context.close()
    assert watched.errors == []


HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def test_hostile_texts_are_text(watched: Watched, server: str, models: FakeModels) -> None:
    page = watched.open(server)
    page.click("#alternatives")
    page.route("**/translate", lambda route: route.fulfill(json={"translatedText": HOSTILE, "alternatives": [HOSTILE]}))
    assert write(watched, HOSTILE) == HOSTILE
    assert page.inner_text("#others button") == HOSTILE
    page.evaluate(DROP, f"{HOSTILE}.txt".replace("/", ""))
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Translate – Regard"
    assert isinstance(models.fakes[Direction("en", "de")], FakeQueue)


TWO_LINES = "The bear is tired.\nThe mouse can't cross the forest because it is too dark."


def test_a_translation_can_be_looked_into(watched: Watched) -> None:
    """The link leads to the explorer with the sentence of the cursor, or with what is selected."""
    with running(create_app(Models([GLASS]), look=True)) as address:
        page = watched.open(address)
        assert not page.is_visible("#look")
        made = write(watched, TWO_LINES).split("\n")
        expect(page.locator("#look")).to_be_visible()
        for select, text, output in (
            ("each => each.setSelectionRange(25, 25)", TWO_LINES.split("\n")[1], made[1]),
            ("each => each.setSelectionRange(0, 18)", TWO_LINES.split("\n")[0], made[0]),
        ):
            page.locator("#text").evaluate(select)
            with page.context.expect_page() as opening:
                page.click("#look")
            explorer = opening.value
            explorer.wait_for_selector("body[data-drawn]:not([aria-busy])")
            assert explorer.url.startswith(f"{address}look/en-fr/#")
            assert explorer.input_value("input[name=text]") == text
            assert explorer.inner_text("#output") == output
            explorer.close()
    with running(create_app(Models([GLASS]))) as address:
        watched.open(address)
        write(watched, "The bear is tired.")
        assert not watched.page.is_visible("#look")
