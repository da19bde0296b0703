"""A model folder as something to call: text in, text out.

PyTorch takes seconds to import, and is imported when a model is loaded that needs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from regard.argument_checks import kind_of, require, require_path
from regard.errors import InputError
from regard.model_folder import TOKENIZER, check_folder, read_settings
from regard.settings import Settings

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
    from regard.decoding.hypotheses import WritingSearch
    from regard.decoding.token_shortlist import Shortlist
    from regard.decoding.translator import Translator
    from regard.decoding.writer import Writer

E = TypeVar("E", "Translator", "Writer", "Filler", "Classifier", "Embedder")

VERBS = {"Translator": "translate", "Writer": "write", "Filler": "fill", "Classifier": "classify", "Embedder": "embed"}
"""What each kind of object does, which is also the task of the models it is made for."""

ENGINES, PRECISIONS = ("auto", "native", "torch"), ("auto", "float32", "int8")


def load(
    path: Path | str,
    device: str = "auto",
    *,
    engine: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    shortlist: bool = False,
) -> Translator | Writer | Filler | Classifier | Embedder:
    """Loads a model folder as what the model was trained for.

        >>> translator = regard.load("runs/en-de")
        >>> translator("A dog runs.")

    Only the folder knows which of the five it is; `load_as` asks for one of them, for programs whose types are checked.
    `engine` is native (C++ on the CPU, for models that translate or write), torch, or auto: native where possible.
    `precision` of the native engine is float32, int8, or auto: that of the folder. `threads` of the native engine
    defaults to all processors. With `shortlist`, a translator writes only the tokens that `regard shortlist` has found
    likely for a source.
    """
    folder = require_path(path, "load")
    check_folder(folder)
    settings = read_settings(folder)
    found: Translator | Writer | Filler | Classifier | Embedder
    found = _load(folder, settings, settings.task, _How(device, engine, precision, threads, shortlist))
    return found


def load_as(
    kind: type[E],
    path: Path | str,
    device: str = "auto",
    *,
    engine: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    shortlist: bool = False,
) -> E:
    """Loads a model folder as a Translator, a Writer, a Filler, a Classifier or an Embedder, and has that type.

        >>> translator = regard.load_as(regard.Translator, "runs/en-de")
        >>> translator.translate(["A dog runs."])[0].score

    Any encoder can be an Embedder. The other arguments are those of `load`.
    """
    if getattr(kind, "__name__", None) not in VERBS:
        raise InputError(f"load_as takes {', '.join(VERBS)} and then the folder, not {kind_of(kind)} first")
    folder, verb = require_path(path, "load_as"), VERBS[kind.__name__]
    check_folder(folder)
    settings = read_settings(folder)
    task = settings.task
    if task != verb and not (verb == "embed" and task in ("fill", "classify")):
        raise InputError(f"{path}: is a model to {task}, not to {verb}: use regard {task} {path}")
    made: E = _load(folder, settings, verb, _How(device, engine, precision, threads, shortlist))
    return made


class _How(NamedTuple):
    device: str
    engine: str
    precision: str
    threads: int | None
    shortlist: bool


def _load(folder: Path, settings: Settings, verb: str, how: _How) -> Any:
    require(how.device, str, "device", "a name such as auto, cpu or cuda")
    require(how.threads, (int, type(None)), "threads", "a number of threads")
    if how.threads is not None and how.threads < 1:
        raise InputError(f"threads must be at least 1, not {how.threads}: leave it out to use all processors")
    made = _make(folder, settings, verb, how)
    made.folder = folder
    return made


def _make(folder: Path, settings: Settings, verb: str, how: _How) -> Any:
    if how.shortlist and settings.task != "translate":
        raise InputError(f"{folder}: is a model to {settings.task}, which has no shortlist")
    if _native(folder, settings, how):
        return _load_native(folder, settings, how)
    from regard.decoding.confidence import Confidence
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
    from regard.decoding.pytorch_engine import translator_of, writer_of
    from regard.weights import choose_device, read_folder

    contents = read_folder(folder, choose_device(how.device))
    match verb:
        case "translate":
            return translator_of(contents, Confidence.load(folder), _shortlist(folder, how))
        case "write":
            return writer_of(contents)
        case "fill":
            return Filler(contents)
        case "classify":
            return Classifier(contents)
        case _:
            return Embedder(contents)


def _shortlist(folder: Path, how: _How) -> Shortlist | None:
    from regard.decoding.token_shortlist import Shortlist

    return Shortlist.load(folder) if how.shortlist else None


def _native(folder: Path, settings: Settings, how: _How) -> bool:
    """Whether the native engine shall be used; what cannot be is refused."""
    from regard.decoding.native.packed_cache import unfit

    for name, value, values in (("engine", how.engine, ENGINES), ("precision", how.precision, PRECISIONS)):
        if value not in values:
            raise InputError(f"{name} {value} is not known: use {', '.join(values[:-1])} or {values[-1]}")
    reason = unfit(settings)
    if reason is None and how.device not in ("auto", "cpu"):
        reason = f"it does not run on {how.device}"
    if reason is None and how.device == "auto" and how.engine == "auto" and _accelerator():
        reason = "PyTorch can use this machine's accelerator"
    if how.engine == "torch":
        reason = "PyTorch is asked for"
    if reason and (how.engine == "native" or how.precision == "int8"):
        asked = "the native engine" if how.engine == "native" else "int8, which only the native engine has,"
        raise InputError(f"{folder}: {asked} cannot be used: {reason}")
    return reason is None


def _accelerator() -> bool:
    """Whether there is a device that PyTorch is likely to use, without asking PyTorch, which takes seconds."""
    return Path("/dev/nvidiactl").exists() or (sys.platform == "darwin" and os.uname().machine == "arm64")


def _load_native(folder: Path, settings: Settings, how: _How) -> Any:
    from regard.decoding.confidence import Confidence
    from regard.decoding.native.native_search import NativeSearch
    from regard.decoding.native.packed_cache import open_packed, read_stored
    from regard.tokens.tokenizer import Vocabularies

    def reference() -> WritingSearch:
        made = _load(folder, settings, settings.task, _How("cpu", "torch", "auto", None, how.shortlist))
        search: WritingSearch = made.searcher
        return search

    vocabularies = Vocabularies.load(folder / TOKENIZER)
    stored = read_stored(folder)
    precision = stored.precision if how.precision == "auto" else how.precision
    packed = open_packed(folder, settings, precision)
    if shortlist := _shortlist(folder, how):
        packed.shorten(shortlist)
    search = NativeSearch(
        packed,
        vocabularies.target.specials,
        longest=settings.model.max_length,
        decoder_only=settings.task == "write",
        threads=how.threads,
        fallback=reference,
        about=f"{precision}, {stored.parameters:,} parameters, ",
    )
    if settings.task == "write":
        from regard.decoding.writer import Writer

        return Writer(settings, vocabularies.target, search)
    from regard.decoding.translator import Translator

    return Translator(settings, vocabularies, search, Confidence.load(folder))
