"""Regard trains Transformer models on your own text, runs them anywhere, and shows what happens inside them.

>>> import regard
>>> for event in regard.train(["train.en", "train.de"], "runs/en-de"):
...     print(event)
>>> translator = regard.load("runs/en-de")
>>> translator("A dog runs.")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
    from regard.decoding.model_loading import load, load_as
    from regard.decoding.translation_results import Translation
    from regard.decoding.translator import Translator
    from regard.decoding.writer import Writer
    from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError
    from regard.evaluation.translation_scores import compare, score
    from regard.explorer.model_explorer import look
    from regard.model.observe import observe
    from regard.preparation.train_and_resume import distill, resume, train
    from regard.settings import Settings

_NAMES = {
    "decoding.fill_classify_embed": ("Classifier", "Embedder", "Filler"),
    "decoding.model_loading": ("load", "load_as"),
    "decoding.translation_results": ("Translation",),
    "decoding.translator": ("Translator",),
    "decoding.writer": ("Writer",),
    "errors": ("DataError", "InputError", "ModelError", "RegardError", "SettingsError"),
    "evaluation.translation_scores": ("compare", "score"),
    "explorer.model_explorer": ("look",),
    "model.observe": ("observe",),
    "preparation.train_and_resume": ("distill", "resume", "train"),
    "settings": ("Settings",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Classifier",
    "DataError",
    "Embedder",
    "Filler",
    "InputError",
    "ModelError",
    "RegardError",
    "Settings",
    "SettingsError",
    "Translation",
    "Translator",
    "Writer",
    "compare",
    "distill",
    "load",
    "load_as",
    "look",
    "observe",
    "resume",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, because importing torch takes seconds."""
    if name in _HOMES:
        return getattr(import_module(f"regard.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
