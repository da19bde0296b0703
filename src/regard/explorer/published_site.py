"""Publishes models as a static website: the page of the explorer, the engine that runs models in it, and the models."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.errors import InputError, ModelError
from regard.explorer.displayed_tokens import Lexicon
from regard.explorer.export import safetensors_bytes, script_json
from regard.explorer.model_explorer import Explorer, Run
from regard.explorer.page_files import ENGINE, PAGE, content_policy, inline_hashes
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.language_directions import directions_of
from regard.weights import parameters, read_tensors

TOKENIZER = Path(__file__).parents[1] / "browser" / "tokenizer.js"
OPENED_AS_FILE = """<style>@keyframes late { to { visibility: visible } }</style>
<p style="visibility: hidden; animation: late 0s 4s forwards">If nothing else appears here, this page was opened as a
file, and browsers run it only from a web server. In its folder, run <code>python -m http.server</code>, then open
localhost:8000.</p>
"""
MOST_BYTES = 256_000_000
"""Maximum size in bytes of the float32 weights that a page loads."""
MOST_COMPARED = 500_000
"""Numbers of a tensor up to which visitors can compare it with PyTorch's."""


def publish(explorers: Sequence[Explorer], site: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Writes a website with these models into the folder `site`; `progress` is called with the name of each."""
    for explorer in explorers:
        check_publishable(explorer)
    folders = folder_names([explorer.name for explorer in explorers])
    files = copy_page(site)
    for number, (explorer, folder) in enumerate(zip(explorers, folders, strict=True)):
        progress(explorer.name)
        write_model(explorer, site / "models" / folder, list_pages(explorers, folders, number))
        page = site / "models" / folder / "index.html" if number else site / "index.html"
        page.write_text(index_html("." if number else f"models/{folder}", files, root="../../" if number else ""))


def list_pages(explorers: Sequence[Explorer], folders: Sequence[str], current: int) -> list[dict[str, str]]:
    """Returns the names of several models, and their URLs relative to the page of the current model."""
    root = "../../" if current else "./"
    addresses = [root, *(f"{root}models/{folder}/" for folder in folders[1:])]
    addresses[current] = "./"
    pages = zip(explorers, addresses, strict=True)
    return [{"name": each.name, "about": each.about, "address": there} for each, there in pages if len(explorers) > 1]


def check_publishable(explorer: Explorer) -> None:
    """Raises InputError if a browser cannot run the model."""
    name, anatomy = explorer.folder or explorer.name, explorer.anatomy
    if any(isinstance(lexicon.tokenizer, ImportedTokenizer) for lexicon in anatomy.lexicons.values()):
        raise InputError(
            f"{name}: the vocabulary was imported, but published pages support only vocabularies learned by Regard: "
            "use regard look"
        )
    size = weights_size(explorer)
    if size > MOST_BYTES:
        raise InputError(
            f"{name}: the page would load {size / 1e6:,.0f} MB of weights, more than the {MOST_BYTES / 1e6:,.0f} MB "
            "that a browser can handle: publish a smaller model, or use regard look"
        )


def weights_size(explorer: Explorer) -> int:
    """Returns the size of the weights in float32 in bytes."""
    return 4 * sum(tensor.numel() for tensor in parameters(explorer.anatomy.model).values())


def folder_names(names: Sequence[str]) -> list[str]:
    """Returns a unique folder name for each model that needs no escaping in URLs."""
    folders: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "model"
        numbered = (f"{plain}-{number}" if number > 1 else plain for number in range(1, len(names) + 1))
        folders.append(next(each for each in numbered if each not in folders))
    return folders


def copy_page(site: Path) -> dict[str, list[str]]:
    """Copies the files of the page and its engine; returns the names of the page's modules and lessons."""
    paths = [path for path in sorted(PAGE.rglob("*")) if path.suffix in (".js", ".css", ".md", ".json")]
    for path in paths:
        target = site / "static" / path.relative_to(PAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(TOKENIZER, site / "static" / ENGINE / TOKENIZER.name)
    names = [path.relative_to(PAGE).as_posix() for path in paths if path.parent.name != ENGINE]
    kinds = {"modules": (".js",), "lessons": (".md", ".json")}
    return {kind: [name for name in names if name.endswith(ends)] for kind, ends in kinds.items()}


def index_html(folder: str, files: Mapping[str, Sequence[str]], root: str) -> str:
    """Returns the page of the model in a folder; `root` leads from the page to the site's files.

    The page has a Content-Security-Policy, since a static host sends none.
    """
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    data = script_json({"folder": f"{folder}/", **files})
    parts = {
        '"./static/"': f'"{root or "./"}static/"',
        'href="static/': f'href="{root}static/',
        'src="static/': f'src="{root}static/',
        '<div id="app"></div>': f'<div id="app">{OPENED_AS_FILE}</div>',
        "</body>": f'<script type="application/json" id="regard-published">{data}</script>\n</body>',
    }
    for place, new in parts.items():
        index = replace_once(index, place, new)
    scripts = inline_hashes(index.split("<div", 1)[0].encode())
    policy = f'<meta http-equiv="Content-Security-Policy" content="{content_policy(scripts)}">'
    return replace_once(index, "<head>", f"<head>\n{policy}")


def replace_once(index: str, place: str, new: str) -> str:
    """Replaces the only occurrence of `place` in the page."""
    if index.count(place) != 1:
        raise ModelError(f"{PAGE}: the page is damaged (index.html lacks {place}): install Regard again")
    return index.replace(place, new)


def write_model(explorer: Explorer, folder: Path, pages: Sequence[dict[str, str]]) -> None:
    """Writes the files of one model: its description, vocabulary, weights and earlier weights."""
    (folder / "history").mkdir(parents=True)
    contents = explorer.contents
    about = explorer.describe() | {"models": list(pages), "path": None}  # the page does not contain the model's path
    texts = {
        "model.json": json.dumps(about, ensure_ascii=False),
        "details.json": json.dumps(engine_details(explorer), ensure_ascii=False, separators=(",", ":")),
        "tokenizer.json": contents.vocabularies.to_json(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pytorch.safetensors").write_bytes(pytorch_tensors(explorer))
    weights = {name: tensor.float() for name, tensor in parameters(explorer.anatomy.model).items()}
    (folder / "weights.safetensors").write_bytes(safetensors_bytes(weights, {}))
    for name, path in explorer.checkpoints.files().items():
        tensors, _ = read_tensors(path)
        small = {each: tensor if tensor.dtype == torch.float16 else tensor.float() for each, tensor in tensors.items()}
        (folder / "history" / f"{name}.safetensors").write_bytes(safetensors_bytes(small, {}))


def engine_details(explorer: Explorer) -> dict[str, Any]:
    """Returns what the engine needs beside the description of the model and its files."""
    settings, usage = explorer.contents.settings, explorer.usage
    directions = directions_of(settings.data) if settings.data.directions else ()
    return {
        "decoding": asdict(settings.decoding),
        "embedding": asdict(settings.embedding),
        "target": explorer.direction.target,
        "directions": [{"source": each.source, "target": each.target} for each in directions],
        "lexicons": {text: lexicon_details(lexicon) for text, lexicon in explorer.anatomy.lexicons.items()},
        "usage": None
        if usage is None
        else {"counts": {text: counts.tolist() for text, counts in usage.counts.items()}, "texts": usage.texts},
        "sources": source_lines(explorer),
        "example": example_run(explorer).answer["request"],
        "lessons": {name: lesson.text for name, lesson in explorer.lessons.items()},
    }


def lexicon_details(lexicon: Lexicon) -> dict[str, Any]:
    """Returns the special ids of a tokenizer, and which tokens continue words, as a digit for each token."""
    tokenizer = lexicon.tokenizer
    return {
        "size": tokenizer.size,
        "specials": asdict(tokenizer.specials) | {"never_generated": tokenizer.specials.never_generated},
        "tags": tokenizer.tags,
        "continues": "".join(str(int(each)) for each in tokenizer.continues()),
        "can_continue": "".join(str(int(each)) for each in tokenizer.can_continue()),
    }


def example_run(explorer: Explorer) -> Run:
    """Returns the run of the model's first example."""
    return explorer.run({"text": explorer.describe()["examples"][0]})


def pytorch_tensors(explorer: Explorer) -> bytes:
    """Returns the tensors of the example that PyTorch computes, with which visitors can compare those of the engine."""
    seen = example_run(explorer).passed.seen
    small = {name: each.tensor.float() for name, each in seen.items() if each.tensor.numel() <= MOST_COMPARED}
    return safetensors_bytes(small, {})


def source_lines(explorer: Explorer) -> dict[str, Any]:
    """Returns the lines of code that make the tensors of a run: each line once, and its number for each tensor."""
    run = example_run(explorer)
    places: list[dict[str, Any]] = []
    names: dict[str, int] = {}
    for name in run.names():
        place = explorer.find_source(name)
        if place not in places:
            places.append(place)
        names[name] = places.index(place)
    return {"places": places, "names": names}
