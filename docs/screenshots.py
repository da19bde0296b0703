"""Takes the pictures in docs/look.md: each view of the explorer in light and dark, and a recording of the whole model.

python docs/screenshots.py [MODEL] [-o FOLDER]     (make screenshots; those in docs/images are of the glass model)
"""

import argparse
import io
import threading
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from regard.cli.look import listen, open_model
from regard.explorer.http_api import create_app
from regard.explorer.model_explorer import Explorer

VIEWS: dict[str, dict[str, object]] = {
    "whole": {},
    "journey": {"card": 9, "q": 9, "layer": 1},
    "atlas": {"stack": "encoder", "layer": 1},
    "head": {"stack": "decoder", "kind": "cross_attention", "layer": 1, "t": 12},
    "microscope": {"stack": "encoder", "layer": 1, "q": 9},
    "decoding": {"t": 12},
    "beam": {},
    "lens": {"stack": "decoder", "t": 12},
    "whatif": {"t": 12, "ab": "both", "b": '{"text": "The animal didn\'t cross the street because it was too wide."}'},
    "positions": {},
    "space": {"q": 9},
    "alignment": {"stack": "decoder", "kind": "cross_attention", "layer": 1},
    "time": {"t": 12},
    "weights": {},
}
TEXT = "The animal didn't cross the street because it was too tired."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a model folder (the glass model)")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    address = serve(open_model(arguments.model or "glass", "cpu", None))
    height = 900 if arguments.width > 500 else 700
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": arguments.width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            for view, selected in VIEWS.items():
                page.goto("about:blank")
                page.goto(f"{address}#{urlencode({'view': view, 'text': TEXT, **selected})}")
                page.wait_for_selector("body[data-drawn]:not([aria-busy])")
                page.wait_for_load_state("networkidle")
                page.screenshot(path=arguments.output / f"explorer-{view}-{theme}.jpg", type="jpeg", quality=50)
            context.close()
        record_whole_model(browser, serve(open_model(None, "cpu", None)), arguments.output / "whole-model.webp")
        browser.close()


def record_whole_model(browser: Browser, address: str, output: Path) -> None:
    """Writes an animation of ten seconds: the sentence goes through the model, and the translation is written."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}#{urlencode({'view': 'whole', 'text': TEXT})}")
    page.wait_for_selector("body[data-drawn]:not([aria-busy])")
    count = int(page.locator(".whole").get_attribute("data-frames") or 1)
    frames = []
    for frame in range(count):
        page.locator(".controls input").fill(str(frame))
        page.wait_for_timeout(400)
        page.locator(".controls button").first.evaluate("button => button.blur()")
        box = page.locator("#main section.pane").bounding_box()
        assert box
        picture = page.screenshot(clip={"x": box["x"] - 8, "y": box["y"], "width": box["width"] + 16, "height": 620})
        frames.append(Image.open(io.BytesIO(picture)).convert("RGB").resize((900, 519)))
    frames[0].save(
        output, save_all=True, append_images=frames[1:], duration=10_000 // count, loop=0, quality=50, method=6
    )


def serve(explorer: Explorer) -> str:
    """Serves the explorer in a thread that ends with the program; returns its address."""
    waiting = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(explorer), log_level="warning", lifespan="off", ws="none"))
    threading.Thread(target=server.run, kwargs={"sockets": [waiting]}, daemon=True).start()
    return f"http://127.0.0.1:{waiting.getsockname()[1]}/"


if __name__ == "__main__":
    main()
