"""Measures `regard export --to page` in Chromium: `python benchmarks/translator_file.py MODEL --texts FILE`.

FILE has a sentence per line. Lines with placeholders are left out; 850 must remain. The page is opened from a disk,
with the network off. The first translation is timed from the start of the navigation. Words per second are those of 250
lines, after 100 to warm up: by the clock of the page, and by the processor time of the whole browser, which counts
on a machine with other work. Each line is compared with the native engine in int8.
"""

import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.interop.page import export_model
from regard.tokens.protected_pieces import find

LINES, WARM_UP, ROUNDS = 250, 100, 3


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    lines = [line for line in options.texts.read_text(encoding="utf-8").splitlines() if not find(line)]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "translate.html"
        export_model(options.model, file)
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"])
        found = measure(browser, file, options.model, lines)
        rows = [{"what": what, "measured": round(value, 2)} for what, value in found]
        versions = {"Chromium": browser.version}
        browser.close()
    table = tables.build("", rows)
    records.publish(options.keep, "page", [table], versions=versions)


def measure(browser: Browser, file: Path, model: Path, lines: list[str]) -> Iterator[tuple[str, float]]:
    text = file.read_text(encoding="utf-8")
    weights = re.search(r'"model": "([^"]*)"', text)
    yield "page, MB", len(text.encode()) / 1e6
    yield "page without the weights, kB", (len(text.encode()) - len(weights[1] if weights else "")) / 1e3
    times = [first_translation(browser, file, line) for line in lines[:5]]
    yield "first translation, ms, median of 5", statistics.median(times)
    yield "first translation, ms, longest of 5", max(times)
    page = opened(browser, file)
    translate(page, lines[:WARM_UP])
    speeds, busy, made = [], [], []
    for number in range(ROUNDS):
        some = lines[WARM_UP + number * LINES :][:LINES]
        words, before = sum(len(line.split()) for line in some), processor_seconds()
        found, milliseconds = translate(page, some)
        busy.append(words / (processor_seconds() - before))
        speeds.append(words / milliseconds * 1000)
        made += found
    yield "words/s, best of 3", max(speeds)
    yield "words/s, median of 3", statistics.median(speeds)
    yield "words per second of processor time, best of 3", max(busy)
    yield "words per second of processor time, median of 3", statistics.median(busy)
    translator = load_as(Translator, model, engine="native", precision="int8", threads=1)
    same = lines[WARM_UP : WARM_UP + ROUNDS * LINES]
    translator.translate(same[:WARM_UP])
    start = time.process_time()
    expected = [each.text for each in translator.translate(same)]
    words, seconds = sum(len(line.split()) for line in same), time.process_time() - start
    yield "native engine, 1 thread, words per second of processor time", words / seconds
    yield "lines compared", len(expected)
    yield "lines as from the native engine", sum(a == b for a, b in zip(made, expected, strict=True))


def opened(browser: Browser, file: Path) -> Page:
    page = browser.new_context(offline=True).new_page()
    page.set_default_timeout(600_000)
    page.goto(file.as_uri())
    return page


def first_translation(browser: Browser, file: Path, line: str) -> float:
    """Returns the milliseconds from the start of the navigation to the translation of a line."""
    page = opened(browser, file)
    page.fill("#text", line)
    page.wait_for_selector("#copy:not([disabled])")
    milliseconds = float(page.evaluate("performance.now()"))
    page.context.close()
    return milliseconds


def processor_seconds() -> float:
    """Returns the processor time of all descendants of this process so far: those of the browser."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        number = int(path.parent.name)
        parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(number, 0) for number in ours - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def translate(page: Page, lines: list[str]) -> tuple[list[str], float]:
    """Returns the translations of lines, and the milliseconds that the page took for them."""
    before: Any = page.get_attribute("body", "data-done")
    page.fill("#text", "\n".join(lines))
    page.wait_for_selector(f"body[data-done]:not([data-done='{before}']):not([aria-busy])")
    return page.input_value("#made").split("\n"), float(page.get_attribute("body", "data-milliseconds") or 0)


if __name__ == "__main__":
    main()
