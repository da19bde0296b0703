"""regard look: opens a model in the browser, or saves one run of it as a page."""

from __future__ import annotations

import argparse
import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import output_paths as destination
from regard.cli.setting_flags import Verbs
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.explorer.model_explorer import Explorer

PORT = 8321


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "look",
        help="look into a model: every layer, head and step of decoding, in the browser",
        description="Serves a page on which you type a sentence and look into the model; without MODEL, a small one "
        "that the package brings along. With -o, saves the run on --text as one page that needs no server.",
        allow_abbrev=False,
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model folder")
    parser.add_argument("--text", help="the sentence to look at (the model's first example)")
    parser.add_argument("--target", help="the output to force, instead of what the model would write")
    parser.add_argument(
        "--to",
        metavar="LANGUAGE",
        help="language to translate into, of a model of several directions (the first one's)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="save as FILE: .html (a page), .json or .safetensors"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen on, 0: any free one ({PORT})")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (auto)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.port <= 65_535:
        raise InputError(f"--port {arguments.port}: a port is a number from 0 to 65535")
    if arguments.output is None and arguments.target is not None and arguments.text is None:
        raise InputError("--target is the output for a --text: give both")
    if arguments.output is not None:
        require_output(arguments)
    explorer = open_model(arguments.model, arguments.device, arguments.to)
    if arguments.output is not None:
        return save(explorer, arguments)
    return serve(explorer, arguments)


def open_model(path: str | None, device: str, to: str | None) -> Explorer:
    from regard.explorer.model_explorer import Explorer

    if path is not None:
        return Explorer.open(path, device, to=to)
    from regard.demo import GLASS
    from regard.demo.sentence_generator import EXAMPLES

    return Explorer.open(GLASS, device, "glass", EXAMPLES[:2], to)


def require_output(arguments: argparse.Namespace) -> None:
    """Refuses an output of another format, one that exists, and one that cannot be written."""
    output: Path = arguments.output
    if output.suffix not in (".html", ".json", ".safetensors"):
        raise InputError(f"{output}: save as .html (a page), .json or .safetensors")
    if output.exists() and not arguments.overwrite:
        raise InputError(f"{output}: is there already: choose another name, or --overwrite")
    destination.require_file(output, [arguments.model] if arguments.model else [])


def save(explorer: Explorer, arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    text = explorer.describe()["examples"][0] if arguments.text is None else arguments.text
    found = explorer.run({"text": text, "target": arguments.target})
    found.save(output)
    for warning in found.answer["warnings"]:
        print(f"note: {warning}")
    print(f"{text}  ->  {found.answer['text']}")
    if not found.answer["finished"]:
        print("note: the output reached its longest length and was cut there")
    hint = "; open it in any browser, no server needed" if output.suffix == ".html" else ""
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB{hint}")
    return 0


def serve(explorer: Explorer, arguments: argparse.Namespace) -> int:
    from urllib.parse import urlencode

    import uvicorn

    from regard.explorer.http_api import create_app

    host: str = arguments.host
    waiting = listen(host, arguments.port)
    asked = {"text": arguments.text, "target": arguments.target}
    chosen = urlencode({name: value for name, value in asked.items() if value})
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    shown = f"[{name}]" if ":" in name else name
    address = f"http://{shown}:{waiting.getsockname()[1]}/" + (f"#{chosen}" if chosen else "")
    print(f"{explorer.name}: {address}  (Ctrl+C ends it)", flush=True)
    if not arguments.no_browser:
        import webbrowser

        webbrowser.open(address)
    config = uvicorn.Config(create_app(explorer, hosts=[name]), log_level="warning", lifespan="off", ws="none")
    uvicorn.Server(config).run(sockets=[waiting])
    return 0


def listen(host: str, port: int) -> socket.socket:
    """A socket that waits for browsers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "another program uses this port: end it, or give --port 0 for any free one" if taken else error.strerror
        raise InputError(f"cannot listen on {host} port {port}: {hint}") from None
