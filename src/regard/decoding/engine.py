"""A model folder as something to call: text in, text out.

PyTorch takes seconds to import, and is imported when a model is loaded that needs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from regard.errors import InputError
from regard.folder import TOKENIZER, check_folder, read_settings
from regard.settings import Settings

if TYPE_CHECKING:
    from regard.decoding.hypothesis import WritingSearch
    from regard.decoding.reader import Classifier, Embedder, Filler
    from regard.decoding.shortlist import Shortlist
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
) -> Any:
    """What the model in a folder is for: a Translator, a Writer, a Filler, a Classifier or an Embedder.

    Only the folder knows which; `load_as(Translator, path)` is for programs whose types are checked. `engine` is native
    (C++ on the CPU, for what translates or writes), torch, or auto: native where it can be. `precision` of the native
    engine is float32, int8, or auto: that of the folder. `threads` of the native engine: none is all processors.
    With `shortlist`, a translator writes the tokens alone that `regard shortlist` has found likely for a source.
    """
    folder = Path(path)
    check_folder(folder)
    settings = read_settings(folder)
    return _load(folder, settings, settings.task, _How(device, engine, precision, threads, shortlist))


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
    """The model in a folder as this kind of object; any encoder is an Embedder. The rest is as in `load`."""
    folder, verb = Path(path), VERBS[kind.__name__]
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
    if how.shortlist and settings.task != "translate":
        raise InputError(f"{folder}: is a model to {settings.task}, which has no shortlist")
    if _native(folder, settings, how):
        return _load_native(folder, settings, how)
    from regard.decoding.confidence import Confidence
    from regard.decoding.reader import Classifier, Embedder, Filler
    from regard.decoding.reference import translator_of, writer_of
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
    from regard.decoding.shortlist import Shortlist

    return Shortlist.load(folder) if how.shortlist else None


def _native(folder: Path, settings: Settings, how: _How) -> bool:
    """Whether the native engine shall be used; what cannot be is refused."""
    from regard.decoding.native.loading import unfit

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
    from regard.decoding.native.loading import open_packed, stored_precision
    from regard.decoding.native.search import NativeSearch
    from regard.text.tokenizer import Vocabularies

    def reference() -> WritingSearch:
        made = _load(folder, settings, settings.task, _How("cpu", "torch", "auto", None, how.shortlist))
        search: WritingSearch = made.searcher
        return search

    vocabularies = Vocabularies.load(folder / TOKENIZER)
    precision = stored_precision(folder) if how.precision == "auto" else how.precision
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
    )
    if settings.task == "write":
        from regard.decoding.writer import Writer

        return Writer(settings, vocabularies.target, search)
    from regard.decoding.translator import Translator

    return Translator(settings, vocabularies, search, Confidence.load(folder))
