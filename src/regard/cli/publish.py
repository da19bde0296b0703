"""regard publish: writes a website in which models run in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.look import open_model, open_others
from regard.cli.shared_flags import Verbs
from regard.demo import GLASS
from regard.errors import InputError

DESCRIPTION = """Writes a website for any web host: the page of regard look, with models that run in the browser. What
visitors type does not leave the page, and no server computes anything. Without MODEL, publishes the example models
that come with Regard."""
FILES = ("index.html", "models", "static")


def add(verbs: Verbs) -> None:
    about = "write a website that shows what models compute, without a server"
    parser = verbs.add_parser("publish", help=about, description=DESCRIPTION, run=run)
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        metavar="MODEL",
        help="model folders, or names of example models; the page opens the first",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where to write the website")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing website in FOLDER")
    text = "show this lesson (Markdown) beside the views, on the page of each model; may be repeated"
    parser.add_argument("--lesson", type=Path, action="append", default=[], metavar="FILE", help=text)
    text = "language to translate into, for multilingual models (default: the target of their first direction)"
    parser.add_argument("--to", metavar="LANGUAGE", help=text)


def run(arguments: argparse.Namespace) -> int:
    from regard.explorer.lessons import read_lessons
    from regard.explorer.published_site import check_publishable, publish
    from regard.interop.export_folder import whole_folder

    output, models = arguments.output, arguments.models
    for model in models:
        if output.resolve() in (model.resolve(), *model.resolve().parents):
            raise InputError(f"{output}: is or contains the model {model}; specify another folder to write to")
    lessons = read_lessons(arguments.lesson)
    explorers = [open_model(str(model), "cpu", arguments.to) for model in models]
    if not models:
        explorers = [open_model(None, "cpu", arguments.to), *open_others(None, "cpu")]
    for explorer in explorers:
        explorer.lessons = lessons
        check_publishable(explorer)
    with whole_folder(output, models[0] if models else GLASS, FILES, overwrite=arguments.overwrite) as staging:
        publish(explorers, staging, lambda name: print(f"writing {name} ...", flush=True))
    sizes = [path.stat().st_size for path in output.rglob("*") if path.is_file()]
    print(f"{output}: {sum(sizes) / 1e6:.1f} MB in {len(sizes)} files, for any web host. To try it here:")
    print(f"python -m http.server --directory {output} 8000   # then open http://localhost:8000/")
    return 0
