"""A model folder as something to call: text in, text out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from regard.decoding.reader import Classifier, Embedder, Filler
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError
from regard.folder import SETTINGS, read_settings
from regard.weights import choose_device, read_folder

Engine = Translator | Writer | Filler | Classifier | Embedder
E = TypeVar("E", Translator, Writer, Filler, Classifier, Embedder)

ENGINES: dict[str, type[Engine]] = {
    "translate": Translator,
    "write": Writer,
    "fill": Filler,
    "classify": Classifier,
    "embed": Embedder,
}


def load(path: Path | str, device: str = "auto") -> Any:
    """What the model in a folder is for: a Translator, a Writer, a Filler, a Classifier or an Embedder.

    Only the folder knows which; `load_as(Translator, path)` is for programs whose types are checked.
    """
    contents = read_folder(Path(path), choose_device(device))
    return ENGINES[contents.settings.task](contents)


def load_as(engine: type[E], path: Path | str, device: str = "auto") -> E:
    """The model in a folder as this kind of engine; any encoder is an Embedder."""
    folder = Path(path)
    if (folder / SETTINGS).is_file():  # what else is wrong with a folder, reading it will tell
        task = read_settings(folder).task
        fitting = ENGINES[task] is engine or (engine is Embedder and task in ("fill", "classify"))
        if not fitting:
            verb = next(name for name, each in ENGINES.items() if each is engine)
            raise InputError(f"{path}: is a model to {task}, not to {verb}: use regard {task} {path}")
    return engine(read_folder(folder, choose_device(device)))
