"""A real server on a real socket and a real browser that looks at it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from regard.cli.look import listen
from regard.explorer.http_api import create_app
from regard.explorer.model_explorer import Explorer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120_000  # milliseconds: a machine may be busy with other things
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Open for the tests of one file: its event loop goes on in this thread, in the way of other tests."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, then the browser tests run")
    with sync_playwright() as playwright:
        yield (started := playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS))
        started.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Explorer], str]]:
    """Serves models, each on a port of its own, until the tests are over; gives the address."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(explorer: Explorer) -> str:
        socket = listen("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(create_app(explorer), log_level="warning", ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{socket.getsockname()[1]}/"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def glass() -> Explorer:
    from regard.demo import GLASS

    return Explorer.open(GLASS, "cpu")


@pytest.fixture(scope="session")
def address(serve: Callable[[Explorer], str], glass: Explorer) -> str:
    return serve(glass)


class Watched:
    """A page whose errors and requests are kept."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE)
        self.refusals = False  # whether requests of this test are meant to fail
        self.said: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("console", lambda said: self.said.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: self.requests.append(request.url))

    @property
    def errors(self) -> list[str]:
        """What went wrong. The browser's own note of a refused request comes when it will, also after the answer."""
        return [said for said in self.said if not (self.refusals and said.startswith("Failed to load resource"))]

    def open(self, address: str) -> Page:
        """Goes to an address, on the page that is open if it is the same one, and waits until it has drawn."""
        here = self.page.url
        if here != address and here.split("#")[0] == address.split("#")[0]:
            drawn = self.page.get_attribute("body", "data-drawn")
            self.page.goto(address)
            self.page.wait_for_selector(f"body:not([data-drawn='{drawn}'])")
        else:
            self.page.goto("about:blank")
            self.page.goto(address)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Waits until nothing is being run, drawn or moved any more: a card that fades in has too little contrast."""
        self.page.wait_for_selector("body[data-drawn]:not([aria-busy])")
        self.page.evaluate("Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(() => 0)")


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield (found := Watched(context.new_page()))
    context.close()
    assert not found.errors, found.errors


def downloads(page: Page, press: Callable[[], object], folder: Path) -> Path:
    """The file that pressing something saves."""
    with page.expect_download() as waiting:
        press()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
