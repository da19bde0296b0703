"""Exports a translator as one HTML file: the model, the tokenizer and the engine in WebAssembly run in the browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from regard import browser
from regard.atomic_files import write_text
from regard.decoding.native.weight_packing import pack
from regard.errors import InputError, ModelError
from regard.model_folder import TOKENIZER, check_folder, read_settings
from regard.settings import Settings
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.language_directions import UNSPACED, directions_of, format_directions, languages_of, primary
from regard.tokens.vocabulary_learning import EOS
from regard.weights import Contents, parameters, read_folder

HERE = Path(browser.__file__).parent
MODULES = ("tokenizer", "split-long-texts", "protected-pieces", "engine", "translator", "translator-worker")
"""The scripts of the worker, each after those that it imports."""
MOST_BYTES = 100_000_000
"""The largest packed model in a page: browsers need seconds to open a larger file."""


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Writes the page of a translator; returns notes for the user."""
    folder, output = Path(folder), Path(output)
    _check_output(output, overwrite=overwrite)
    check_folder(folder)
    settings = read_settings(folder)
    if settings.task != "translate":
        raise ModelError(f"{folder}: a page needs a model that translates, but the task of this one is {settings.task}")
    if settings.model.kind != "transformer":
        raise ModelError(f"{folder}: a page needs a Transformer, but this model is a {settings.model.kind.upper()}")
    contents = read_folder(folder)
    if isinstance(contents.vocabularies.source, ImportedTokenizer):
        raise ModelError(f"{folder}: pages cannot use the vocabulary of an imported model")
    model = packed_model(contents)
    if len(model) > MOST_BYTES:
        size = f"this model has {len(model) / 1e6:.0f} MB in int8; a page holds at most {MOST_BYTES / 1e6:.0f} MB"
        raise InputError(f"{folder}: {size}: train a smaller preset, or serve this model with regard serve")
    page = page_of(folder.resolve().name, contents.settings, model, (folder / TOKENIZER).read_bytes())
    write_text(output, page)
    return [f"{len(page.encode()) / 1e6:.1f} MB; open the file in a browser", *_ignored(settings)]


def packed_model(contents: Contents) -> bytes:
    """Returns the weights of a model in int8, packed for the native engine."""
    weights = {name: tensor.float().numpy() for name, tensor in parameters(contents.model).items()}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "packed"
        pack(weights, contents.settings.model, path, decoder_only=False, int8=True)
        return path.read_bytes()


def page_of(name: str, settings: Settings, model: bytes, vocabularies: bytes) -> str:
    """Returns the page; nothing in it depends on the time or the machine."""
    engine = (HERE / "engine.wasm").read_bytes()
    data: dict[str, Any] = {"settings": page_settings(name, settings)}
    data |= {"engine": _packed(engine), "model": _packed(model), "vocabularies": _packed(vocabularies)}
    title = name.replace("&", "&amp;").replace("<", "&lt;")
    parts = {
        "TITLE": f"{title} ({format_directions(settings.data)})",
        "STYLE": _read("translator-page.css"),
        "DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        "WORKER": bundle(),
        "SCRIPT": _read("translator-page.js"),
    }
    return re.sub(r"\b(TITLE|STYLE|DATA|WORKER|SCRIPT)\b", lambda match: parts[match[0]], _read("translator-page.html"))


def page_settings(name: str, settings: Settings) -> dict[str, Any]:
    """Returns what the page needs beside the weights and the vocabularies."""
    directions, decoding = directions_of(settings.data), settings.decoding
    return {
        "name": name,
        "directions": format_directions(settings.data),
        "targets": list(dict.fromkeys(each.target for each in directions)),
        "unspaced": [each for each in languages_of(directions) if primary(each) in UNSPACED],
        "maxLength": settings.model.max_length,
        "end": EOS,
        "decoding": {
            "beam": decoding.beam,
            "lengthPenalty": decoding.length_penalty,
            "powerPenalty": decoding.penalty == "power",
            "patience": decoding.patience,
            "repetitionPenalty": decoding.repetition_penalty,
            "maxRatio": decoding.max_ratio,
        },
    }


def bundle() -> str:
    """Returns the modules of the worker as one script without imports, which a Blob can hold."""
    modules = "\n".join(_read(f"{name}.js") for name in MODULES)
    script = re.sub(r"^export ", "", re.sub(r"^import .*;\n", "", modules, flags=re.MULTILINE), flags=re.MULTILINE)
    if re.search(r"</script|<!--.*<script", script, re.IGNORECASE):
        raise ModelError("a script of the page contains the end of its element")
    return script


def _check_output(output: Path, *, overwrite: bool) -> None:
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: a page is one file: give it a name that ends in .html")
    if output.is_dir():
        raise InputError(f"{output}: is a folder: give the page another name")
    if output.exists() and not overwrite:
        raise InputError(f"{output}: exists already: add --overwrite to replace it")


def _ignored(settings: Settings) -> list[str]:
    """Names the settings of the search that a page does not follow."""
    given = {"consensus": settings.decoding.consensus, "temperature": settings.decoding.temperature}
    return [
        f"the page ignores decoding.{name} of this model and uses its beam" for name, value in given.items() if value
    ]


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _read(name: str) -> str:
    try:
        return (HERE / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{HERE / name}: cannot be read ({error.strerror}): install Regard again") from None
