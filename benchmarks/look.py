"""Times and sizes of the explorer, measured in a real browser: `python benchmarks/look.py MODEL`.

MODEL is a small trained model (runs/demo); a model of the base shape (6 + 6 layers, 8 heads, width 512) is made
without training. Prints each figure beside its target and its hard limit.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import torch
import uvicorn
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

import regard
from benchmarks import records
from regard.cli.look import listen
from regard.explorer.ablation import ablate
from regard.explorer.http_api import create_app
from regard.explorer.trace import Explorer
from regard.settings.resolution import resolve
from regard.weights import Contents, build_model, read_folder

TEXT = "The animal didn't cross the street because it was too tired and the old man was very sad."
REQUESTS = """performance.getEntriesByType("resource").filter(e => e.name.includes("/api/run"))
  .map(e => [e.startTime, e.responseEnd, e.transferSize])"""
FOUND: list[dict[str, object]] = []  # what is told
HOVER = """async (grid) => {
  const box = grid.getBoundingClientRect(), times = [];
  for (let i = 1; i < 100; i++) {
    const start = performance.now();
    const where = {clientX: box.left + box.width * i / 100, clientY: box.top + box.height * i / 100, bubbles: true};
    grid.dispatchEvent(new PointerEvent("pointermove", where));
    grid.querySelector(".crosshair").getBoundingClientRect();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[50];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    records.add_keep(parser)
    options = parser.parse_args()
    small = Explorer.open(options.model, "cpu")
    weigh_page()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        address = serve(small)
        first_data(page, address)
        tell("hover to highlight, ms", hover(page, address), 16, 50)
        base = base_model(options.model)
        address = serve(base)
        page.goto(f"{address}#view=atlas&text={quote(TEXT)}")
        page.wait_for_selector("body[data-drawn]:not([aria-busy])", timeout=60_000)
        for _ in range(30):  # layers are loaded when they come into sight
            page.mouse.wheel(0, 600)
            page.wait_for_timeout(150)
        page.keyboard.press("]")  # draws everything again
        page.wait_for_timeout(1500)
        drawn = sum(float(each.get_attribute("data-ms") or 0) for each in page.query_selector_all("[data-ms]"))
        tell("atlas of 144 heads drawn, ms", drawn, 100, 300)
        run = base.run({"text": TEXT, "decode": {"beam": 1, "max_tokens": 24}})
        tell("ablation of 144 heads, s", timed(lambda: ablate(run.passed, "heads", "zero")), 3, 15)
        chromium = browser.version
        browser.close()
    if options.keep:
        records.keep("look", [records.table("", FOUND)], versions={"Chromium": chromium})


def weigh_page() -> None:
    folder = Path(regard.__file__).parent / "explorer" / "page"
    weights = {path: len(gzip.compress(path.read_bytes(), 9)) for path in folder.rglob("*") if path.is_file()}
    tell("page, all files, KB gzip", sum(weights.values()) / 1000, 60, 100)


def first_data(page: Page, address: str) -> None:
    """From pressing Run to the first tensors, the median of five sentences; the first one warms up."""
    times, sizes = [], []
    page.goto(f"{address}#view=atlas&text=A")
    for number in range(6):
        page.wait_for_selector("body[data-drawn]:not([aria-busy])")
        page.evaluate("performance.clearResourceTimings()")
        page.fill("input[name=text]", TEXT + " " * number)
        page.press("input[name=text]", "Enter")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
        entries = page.evaluate(REQUESTS)
        times.append(entries[1][1] - entries[0][0])
        sizes.append(sum(entry[2] for entry in entries[:2]) / 1000)
    tell("first data after Run, ms", statistics.median(times[1:]), 300, 2000)
    tell("first payload, KB", statistics.median(sizes), 300, 2000)


def hover(page: Page, address: str) -> float:
    page.goto(f"{address}#view=head&text={quote(TEXT)}")
    page.wait_for_selector("[role=grid]")
    return float(page.locator("[role=grid]").first.evaluate(HOVER))


def base_model(path: Path) -> Explorer:
    """A model of the paper's base shape with the small one's vocabulary."""
    vocabularies = read_folder(path).vocabularies
    torch.manual_seed(0)
    settings = resolve({"task": "translate", "preset": "base"})
    return Explorer(Contents(settings, vocabularies, build_model(settings, vocabularies).eval()), "base")


def serve(explorer: Explorer) -> str:
    waiting = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(explorer), log_level="warning", lifespan="off", ws="none"))
    threading.Thread(target=server.run, kwargs={"sockets": [waiting]}, daemon=True).start()
    return f"http://127.0.0.1:{waiting.getsockname()[1]}/"


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def tell(what: str, found: float, target: float, limit: float) -> None:
    verdict = "within the target" if found <= target else "within the limit" if found <= limit else "OVER THE LIMIT"
    FOUND.append({"what": what, "measured": round(found, 1), "aim": target, "limit": limit})
    print(f"{what:32} {found:10.1f}   target {target:g}, limit {limit:g}: {verdict}", flush=True)


if __name__ == "__main__":
    main()
