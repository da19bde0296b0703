"""A model folder as something to call: text in, text out.

PyTorch takes seconds to import, and is imported when a model is loaded that needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import InputError
from regard.folder import check_folder, read_settings

if TYPE_CHECKING:
    from regard.decoding.reader import Classifier, Embedder, Filler
    from regard.decoding.translator import Translator
    from regard.decoding.writer import Writer

E = TypeVar("E", "Translator", "Writer", "Filler", "Classifier", "Embedder")

VERBS = {"Translator": "translate", "Writer": "write", "Filler": "fill", "Classifier": "classify", "Embedder": "embed"}
"""What each engine does, which is also the task of the models it is made for."""


def load(path: Path | str, device: str = "auto") -> Any:
    """What the model in a folder is for: a Translator, a Writer, a Filler, a Classifier or an Embedder.

    Only the folder knows which; `load_as(Translator, path)` is for programs whose types are checked.
    """
    folder = Path(path)
    check_folder(folder)
    return _load(folder, read_settings(folder).task, device)


def load_as(engine: type[E], path: Path | str, device: str = "auto") -> E:
    """The model in a folder as this kind of engine; any encoder is an Embedder."""
    folder, verb = Path(path), VERBS[engine.__name__]
    check_folder(folder)
    task = read_settings(folder).task
    if task != verb and not (verb == "embed" and task in ("fill", "classify")):
        raise InputError(f"{path}: is a model to {task}, not to {verb}: use regard {task} {path}")
    made: E = _load(folder, verb, device)
    return made


def _load(folder: Path, verb: str, device: str) -> Any:
    from regard.decoding.reader import Classifier, Embedder, Filler
    from regard.decoding.reference import translator_of
    from regard.decoding.writer import Writer
    from regard.weights import choose_device, read_folder

    contents = read_folder(folder, choose_device(device))
    match verb:
        case "translate":
            return translator_of(contents)
        case "write":
            return Writer(contents)
        case "fill":
            return Filler(contents)
        case "classify":
            return Classifier(contents)
        case _:
            return Embedder(contents)
