"""Measures times and sizes of the explorer in a real browser: `python benchmarks/look.py MODEL`.

MODEL is a small trained model (runs/demo); a model of the base shape (6 + 6 layers, 8 heads, width 512) is built
without training. Prints each figure with its target and its limit.
"""

import gzip
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import torch
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from docs.screenshots import serve

import regard
from benchmarks import program, records, tables
from regard.explorer.ablation import ablate
from regard.explorer.model_explorer import Explorer
from regard.preparation.chosen_settings import resolve
from regard.weights import Contents, build_model, read_folder

TEXT = "The animal didn't cross the street because it was too tired and the old man was very sad."
REQUESTS = """performance.getEntriesByType("resource").filter(e => e.name.includes("/api/run"))
  .map(e => [e.startTime, e.responseEnd, e.transferSize])"""
Figure = tuple[str, float, float, float]  # the name, the value, the target and the limit


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"])
        found = list(measure(browser.new_page(viewport={"width": 1280, "height": 900}), options.model))
        versions = {"Chromium": browser.version}
        browser.close()
    rows = [
        {"what": what, "measured": round(value, 1), "aim": aim, "limit": limit} for what, value, aim, limit in found
    ]
    table = tables.build("", rows)
    records.publish(options.keep, "look", [table], versions=versions)
    for what in [what for what, value, _, limit in found if value > limit]:
        print(f"over the limit: {what}")


def measure(page: Page, model: Path) -> Iterator[Figure]:
    files = [path for path in (Path(regard.__file__).parent / "explorer" / "page").rglob("*") if path.is_file()]
    yield "page, all files, KB gzip", sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000, 60, 100
    address = serve(Explorer.open(model, "cpu"))
    yield from first_data(page, address)
    page.goto(f"{address}#view=head&text={quote(TEXT)}")
    page.wait_for_selector("[role=grid]")
    hover = Path(__file__).with_name("explorer_hover_times.js").read_text(encoding="utf-8")
    yield "hover to highlight, ms", float(page.locator("[role=grid]").first.evaluate(hover)), 16, 50
    base = base_model(model)
    page.goto(f"{serve(base)}#view=atlas&text={quote(TEXT)}")
    page.wait_for_selector("body[data-drawn]:not([aria-busy])", timeout=60_000)
    for _ in range(30):  # layers are loaded when they come into sight
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(150)
    page.keyboard.press("]")  # draws everything again
    page.wait_for_timeout(1500)
    drawn = sum(float(each.get_attribute("data-ms") or 0) for each in page.query_selector_all("[data-ms]"))
    yield "atlas of 144 heads drawn, ms", drawn, 100, 300
    run = base.run({"text": TEXT, "decode": {"beam": 1, "max_tokens": 24}})
    yield "ablation of 144 heads, s", timed(lambda: ablate(run.passed, "heads", "zero")), 3, 15


def first_data(page: Page, address: str) -> Iterator[Figure]:
    """Measures from pressing Run to the first tensors, the median of five sentences; the first one warms up."""
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
    yield "first data after Run, ms", statistics.median(times[1:]), 300, 2000
    yield "first payload, KB", statistics.median(sizes), 300, 2000


def base_model(path: Path) -> Explorer:
    """Returns an untrained model of the paper's base shape with the small one's vocabulary."""
    vocabularies = read_folder(path).vocabularies
    torch.manual_seed(0)
    settings = resolve({"task": "translate", "preset": "base"})
    return Explorer(Contents(settings, vocabularies, build_model(settings, vocabularies).eval()), "base")


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
