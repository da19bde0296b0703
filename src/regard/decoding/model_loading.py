"""Loads a model folder as an object that turns text into text, labels or vectors.

PyTorch takes seconds to import, so it is imported only when a model needs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from regard.argument_checks import kind_of, require, require_path
from regard.errors import InputError
from regard.model_folder import SHORTLIST, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.model_manifest import SMALL, require_unchanged
from regard.settings import Settings

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
    from regard.decoding.search_interface import SearchEngine
    from regard.decoding.translator import Translator
    from regard.decoding.writer import Writer

E = TypeVar("E", "Translator", "Writer", "Filler", "Classifier", "Embedder")

TASKS = {"Translator": "translate", "Writer": "write", "Filler": "fill", "Classifier": "classify", "Embedder": "embed"}
"""Maps the name of each class to its task."""

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
    """Loads a model folder for the task that the model was trained for.

        >>> translator = regard.load("runs/en-de")
        >>> translator("A dog runs.")

    `load_as` does the same and has a precise return type. `engine` is native (C++ on the CPU, for models that translate
    or write), torch, or auto: native where possible. `precision` of the native engine is float32, int8, or auto: the
    precision of the folder. `threads` of the native engine defaults to all processors. With `shortlist`, a translator
    only generates tokens that `regard shortlist` has found likely for the source.
    """
    model: Translator | Writer | Filler | Classifier | Embedder
    model = _load(require_path(path, "load"), None, _Options(device, engine, precision, threads, shortlist))
    return model


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
    """Loads a model folder as a Translator, Writer, Filler, Classifier or Embedder, and returns that type.

        >>> translator = regard.load_as(regard.Translator, "runs/en-de")
        >>> translator.translate(["A dog runs."])[0].score

    Any encoder can be an Embedder. The other arguments are those of `load`.
    """
    if getattr(kind, "__name__", None) not in TASKS:
        raise InputError(f"load_as takes one of {', '.join(TASKS)}, and then the folder, not {kind_of(kind)} first")
    options = _Options(device, engine, precision, threads, shortlist)
    model: E = _load(require_path(path, "load_as"), TASKS[kind.__name__], options)
    return model


class _Options(NamedTuple):
    device: str
    engine: str
    precision: str
    threads: int | None
    shortlist: bool


def _load(folder: Path, task: str | None, options: _Options) -> Any:
    """Loads a folder for a task, by default the task in its settings."""
    check_folder(folder)
    settings = read_settings(folder)
    own, task = settings.task, task or settings.task
    if task != own and not (task == "embed" and own in ("fill", "classify")):
        raise InputError(f"{folder}: has the task {own}, not {task}: use regard {own} {folder}")
    require(options.device, str, "device", "a name such as auto, cpu or cuda")
    require(options.threads, (int, type(None)), "threads", "a number of threads")
    if options.threads is not None and options.threads < 1:
        raise InputError(f"threads must be at least 1, not {options.threads}: leave it out to use all processors")
    if options.shortlist and settings.task != "translate":
        raise InputError(f"{folder}: has the task {settings.task}, but only translators have shortlists")
    load = _load_native if _is_native(folder, settings, options) else _load_torch
    require_unchanged(folder, SMALL)  # a damaged tokenizer may take seconds to read
    model = load(folder, settings, task, options)
    require_unchanged(folder, (*SMALL, SHORTLIST) if options.shortlist else SMALL)
    model.folder = folder
    return model


def _is_native(folder: Path, settings: Settings, options: _Options) -> bool:
    """Reports whether to use the native engine; raises InputError if the options demand it but it cannot be used."""
    from regard.decoding.native.packed_cache import reason_unsupported

    for name, values in (("engine", ENGINES), ("precision", PRECISIONS)):
        if getattr(options, name) not in values:
            known = f"use {', '.join(values[:-1])} or {values[-1]}"
            raise InputError(f"unknown {name} {getattr(options, name)}: {known}")
    reason = reason_unsupported(settings)
    if options.engine == "torch":
        reason = "engine is torch"
    elif reason is None and options.device not in ("auto", "cpu"):
        reason = f"it does not run on {options.device}"
    elif reason is None and options.device == options.engine == "auto" and _has_accelerator():
        reason = "PyTorch can use this machine's accelerator"
    if reason and (options.engine == "native" or options.precision == "int8"):
        wanted = "the native engine" if options.engine == "native" else "int8, which needs the native engine,"
        raise InputError(f"{folder}: {wanted} cannot be used: {reason}")
    return reason is None


def _has_accelerator() -> bool:
    """Reports whether PyTorch probably supports an accelerator here, without importing it, which takes seconds."""
    return Path("/dev/nvidiactl").exists() or (sys.platform == "darwin" and os.uname().machine == "arm64")


def _load_torch(folder: Path, settings: Settings, task: str, options: _Options) -> Any:
    from regard.decoding import fill_classify_embed, pytorch_engine
    from regard.decoding.confidence import Confidence
    from regard.decoding.token_shortlist import Shortlist
    from regard.weights import choose_device, read_folder

    device, shortlist = choose_device(options.device), Shortlist.load(folder) if options.shortlist else None
    contents = read_folder(folder, device, compare=[WEIGHTS])  # `_load` compares the other files
    if task == "translate":
        return pytorch_engine.translator_of(contents, Confidence.load(folder), shortlist)
    if task == "write":
        return pytorch_engine.writer_of(contents)
    kind = next(kind for kind, name in TASKS.items() if name == task)
    return getattr(fill_classify_embed, kind)(contents)


def _load_native(folder: Path, settings: Settings, task: str, options: _Options) -> Any:
    from regard.decoding.native.native_search import NativeSearch
    from regard.decoding.native.packed_cache import open_packed, read_stored
    from regard.tokens.tokenizer import Vocabularies

    def load_reference() -> SearchEngine:
        require_unchanged(folder, SMALL)
        model = _load_torch(folder, settings, task, options._replace(device="cpu"))
        search: SearchEngine = model.searcher
        return search

    shortlist = None
    if options.shortlist:
        from regard.decoding.token_shortlist import Shortlist

        shortlist = Shortlist.load(folder)
    vocabularies, stored = Vocabularies.load(folder / TOKENIZER), read_stored(folder)
    precision = stored.precision if options.precision == "auto" else options.precision
    packed = open_packed(folder, settings, precision)
    if shortlist is not None:
        packed.shorten(shortlist)
    search = NativeSearch(
        packed,
        vocabularies.target.specials,
        longest=settings.model.max_length,
        decoder_only=task == "write",
        threads=options.threads,
        fallback=load_reference,
        about=f"{precision}, {stored.parameters:,} parameters, ",
    )
    if task == "write":
        from regard.decoding.writer import Writer

        return Writer(settings, vocabularies.target, search)
    from regard.decoding.confidence import Confidence
    from regard.decoding.translator import Translator

    return Translator(settings, vocabularies, search, Confidence.load(folder))
