"""regard look: opens a model in the browser, or saves one run of the model as a page."""

from __future__ import annotations

import argparse
import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.output_paths import require_output
from regard.cli.shared_flags import Verbs, add_device, number
from regard.errors import InputError

if TYPE_CHECKING:
    import uvicorn

    from regard.demo.example_models import ExampleModel
    from regard.explorer.model_explorer import Explorer

DESCRIPTION = """Opens a page in the browser on which you type a sentence and see what the model computes. Without
MODEL, shows small models that come with Regard; their names work as MODEL, too. With -o, saves the page for one
sentence (--text) as a file that needs no server."""


def add(verbs: Verbs) -> None:
    about = "show in the browser what a model computes"
    parser = verbs.add_parser("look", help=about, description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="a model folder, or the name of an example model")
    add("--text", help="the input sentence (default: the model's first example)")
    add("--target", help="force the model to write this output")
    text = "language to translate into, for a multilingual model (default: the target of its first direction)"
    add("--to", metavar="LANGUAGE", help=text)
    text = "show this lesson (Markdown) beside the views and open it first; may be repeated"
    add("--lesson", type=Path, action="append", default=[], metavar="FILE", help=text)
    text = "save the run on --text as a .html (a page), .json or .safetensors file"
    add("-o", "--output", type=Path, metavar="FILE", help=text)
    add("--overwrite", action="store_true", help="replace an existing FILE")
    add_address(parser, 8321)
    add("--no-browser", action="store_true", help="do not open a browser")
    add_device(parser)


def add_address(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds the flags --host and --port."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, accessible only from this machine)",
    )
    text = f"port to listen on; 0: any free port (default: {default})"
    parser.add_argument("--port", type=number(0, 65_535), default=default, help=text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.output is None and arguments.target is not None and arguments.text is None:
        raise InputError("--target is the output for the sentence in --text: pass both flags")
    if arguments.output is not None:
        _require_output(arguments)
    from regard.explorer.lessons import read_lessons

    lessons = read_lessons(arguments.lesson)
    explorer = open_model(arguments.model, arguments.device, arguments.to)
    explorer.lessons = lessons
    return _serve(explorer, arguments) if arguments.output is None else _save(explorer, arguments)


def open_model(path: str | None, device: str, to: str | None) -> Explorer:
    """Opens a model folder or an example model in the explorer; without a path, the first example model."""
    from regard.explorer.model_explorer import Explorer

    if path is not None and not is_example(path):
        return Explorer.open(path, device, to=to)
    from regard.demo.example_models import EXAMPLE_MODELS

    return open_example(EXAMPLE_MODELS[path or next(iter(EXAMPLE_MODELS))], device, to)


def open_others(path: str | None, device: str) -> list[Explorer]:
    """Opens the other example models, which the page offers beside the one at `path`; none beside a model folder."""
    if path is not None and not is_example(path):
        return []
    from regard.demo.example_models import EXAMPLE_MODELS

    first = path or next(iter(EXAMPLE_MODELS))
    return [open_example(each, device) for name, each in EXAMPLE_MODELS.items() if name != first]


def is_example(path: str) -> bool:
    """Reports whether this is the name of an example model; a file or folder of that name comes first."""
    from regard.demo.example_models import EXAMPLE_MODELS

    return path in EXAMPLE_MODELS and not Path(path).exists()


def open_example(example: ExampleModel, device: str, to: str | None = None) -> Explorer:
    """Opens an example model in the explorer, with its name, examples and first selection."""
    from regard.explorer.model_explorer import Explorer

    about, start = example.about, example.start
    return Explorer.open(example.folder, device, example.name, example.examples, to, about=about, start=start)


def _require_output(arguments: argparse.Namespace) -> None:
    output: Path = arguments.output
    if output.suffix not in (".html", ".json", ".safetensors"):
        raise InputError(f"{output}: unknown format: save as .html (a page), .json or .safetensors")
    if output.exists() and not arguments.overwrite:
        raise InputError(f"{output}: already exists: choose another name, or add --overwrite")
    require_output(output, [arguments.model] if arguments.model else [])


def _save(explorer: Explorer, arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    text = explorer.describe()["examples"][0] if arguments.text is None else arguments.text
    trace = explorer.run({"text": text, "target": arguments.target})
    trace.save(output)
    for warning in trace.answer["warnings"]:
        print(f"note: {warning}")
    print(f"{text}  ->  {trace.answer['text']}")
    if not trace.answer["finished"]:
        print("note: the output reached the maximum length and was truncated")
    hint = "; open it in any browser, no server needed" if output.suffix == ".html" else ""
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB{hint}")
    return 0


def _serve(explorer: Explorer, arguments: argparse.Namespace) -> int:
    from urllib.parse import urlencode

    import uvicorn

    host: str = arguments.host
    listener = listen(host, arguments.port)
    request = {"text": arguments.text, "target": arguments.target, "lesson": next(iter(explorer.lessons), None)}
    fragment = urlencode({name: value for name, value in request.items() if value})
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    shown = f"[{name}]" if ":" in name else name
    address = f"http://{shown}:{listener.getsockname()[1]}/" + (f"#{fragment}" if fragment else "")
    print(f"{explorer.name}: {address}  (Ctrl+C stops the server)", flush=True)
    if not arguments.no_browser:
        import webbrowser

        webbrowser.open(address)
    others = open_others(arguments.model, arguments.device)
    uvicorn.Server(server_config(explorer, [name], others)).run(sockets=[listener])
    return 0


def server_config(explorer: Explorer, hosts: list[str], others: Sequence[Explorer] = ()) -> uvicorn.Config:
    """Returns the uvicorn settings of the explorer; its server closes connections that send too slowly."""
    import uvicorn

    from regard.explorer.http_api import create_app
    from regard.serving.uvicorn_server import Protocol

    app = create_app(explorer, hosts=hosts, others=others)
    return uvicorn.Config(app, http=Protocol, log_level="warning", lifespan="off", ws="none")


def listen(host: str, port: int) -> socket.socket:
    """Opens a socket that listens for HTTP clients."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        hint = "another program uses this port: stop it, or use any free port with --port 0"
        raise InputError(f"cannot listen on {host} port {port}: {hint if in_use else error.strerror}") from None
