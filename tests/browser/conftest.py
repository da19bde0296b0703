"""A real server on a real socket and a real browser that looks at it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from regard.cli.look import listen
from regard.explorer.http_api import create_app
from regard.explorer.model_explorer import Explorer, Run
from regard.explorer.published_site import publish

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


@pytest.fixture(scope="session", params=["server", pytest.param("published", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> str:
    """What answers the page: the server, or the engine of a published page."""
    kind: str = request.param
    return kind


@pytest.fixture
def needs_server(engine: str) -> None:
    if engine != "server":
        pytest.skip("a published page sends no requests to a server")


@pytest.fixture(scope="session")
def serve(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Explorer], str]]:
    """Serves models, each on a port of its own, until the tests are over; gives the address."""
    with ExitStack() as servers:

        def start(explorer: Explorer) -> str:
            if engine == "server":
                return servers.enter_context(running_explorer(explorer))
            folder = tmp_path_factory.mktemp("host")
            publish([explorer], folder / "below" / "a path")
            return f"{servers.enter_context(static_host(folder))}below/a%20path/"

        yield start


@contextmanager
def running_explorer(explorer: Explorer, *others: Explorer) -> Iterator[str]:
    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(create_app(explorer, others=others), log_level="warning", ws="none", lifespan="off")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Writes no line for each request."""


@contextmanager
def static_host(folder: Path) -> Iterator[str]:
    """A host of plain files, as `python -m http.server` is one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
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


REQUEST = """async (link) => {
  const { engine } = await import("regard/model-data-client.js");
  return engine && (await (await engine.request(link)).json()).request;
}"""


def shown(explorer: Explorer, page: Page) -> Run:
    """The run that the page shows, as PyTorch computes it."""
    link = page.locator("a[href$='.json']").first.get_attribute("href") or ""
    request = page.evaluate(REQUEST, link)  # of a published page, whose run the server has not seen
    return explorer.find(Path(link).stem) if request is None else explorer.run(request)
