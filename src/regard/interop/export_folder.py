"""Writes the folder of an export atomically, with the vocabulary and an example beside the model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Any, cast

from torch import Tensor

from regard.atomic_files import explain_write_error, write_text
from regard.errors import InputError, ModelError
from regard.model.layers import Layer
from regard.model.positions import sinusoids
from regard.model.transformer import Stack
from regard.settings import ModelSettings, Settings
from regard.tokens.language_directions import format_directions, targets_of
from regard.weights import Contents

README = "README.md"
TOKENIZERS = ("tokenizer.json", "source.json", "target.json")
SINUSOIDS = 1024
"""Minimum number of sinusoidal positions in an export, since other programs cannot compute more as Regard does."""


def sine_table(settings: ModelSettings) -> Tensor:
    """Returns the sines and cosines [N, D] of positions in the layout of this model."""
    halves = settings.positions == "sinusoidal-halves"
    return sinusoids(max(SINUSOIDS, settings.max_length), settings.width, halves)


def require(library: str, extra: str) -> Any:
    """Imports a library, or raises an error that explains how to install it."""
    try:
        return import_module(library)
    except ModuleNotFoundError:
        raise InputError(f"this needs the library {library}: pip install 'regard[{extra}]'") from None


@contextmanager
def whole_folder(output: Path, model: Path, files: Sequence[str], *, overwrite: bool) -> Iterator[Path]:
    """Yields a new folder to fill, which replaces `output` if no error occurs.

    `files` are the names that such an export may contain; a folder that contains anything else is never replaced.
    """
    output = output.resolve()
    staging = output.with_name(f".{output.name}.{os.getpid()}.new")
    try:
        _check_output(output, model.resolve(), files, overwrite=overwrite)
        staging.mkdir(parents=True)
        yield staging
        _put_in_place(staging, output)
    except OSError as error:
        cause = f"cannot be written ({explain_write_error(error)})"
        raise ModelError(f"{output}: {cause}; what was there before is unchanged") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_output(output: Path, model: Path, files: Sequence[str], *, overwrite: bool) -> None:
    """Raises an error if the output is a file, contains the model, or contains anything but an earlier export."""
    if output.exists() and not output.is_dir():
        raise ModelError(f"{output}: is a file; name a folder to write to")
    if output == model or output in model.parents:
        raise ModelError(f"{output}: is or holds the model itself; name another folder to write to")
    names = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if names and not overwrite:
        raise ModelError(f"{output}: is not empty; name another folder, or replace it with --overwrite")
    for name in names:
        if name not in files:
            raise ModelError(f"{output}: holds {name}, which is not part of an export; name another folder")


def _put_in_place(staging: Path, output: Path) -> None:
    """Renames a finished folder; an existing folder is kept until the new one is in place."""
    old = staging.with_suffix(".old")
    if output.exists():
        output.rename(old)
    try:
        staging.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_companions(folder: Path, program: str, contents: Contents, values: dict[str, Any]) -> None:
    """Writes the vocabularies as files of Hugging Face `tokenizers`, and README.md with an example that runs.

    `values` are what the example of this program needs, besides what all need.
    """
    vocabularies, settings = contents.vocabularies, contents.settings
    both, source, target = TOKENIZERS
    if vocabularies.source is vocabularies.target:
        source = target = both
    write_text(folder / source, vocabularies.source.model.to_str())
    write_text(folder / target, vocabularies.target.model.to_str())
    specials = vocabularies.target.specials
    titles = {"translate": format_directions(settings.data), "write": "a writer"}
    values |= {"SOURCE": source, "TARGET": target, "LENGTH": settings.model.max_length}
    values |= {"TITLE": titles.get(settings.task, "an encoder"), "BEGIN": specials.begin, "END": specials.end}
    name = f"{program}_{settings.task if settings.task in titles else 'encode'}.md"
    example = Path(__file__).with_name("examples") / name
    write_text(folder / README, Template(example.read_text(encoding="utf-8")).substitute(values))


def tag_notes(settings: Settings) -> list[str]:
    """Returns a note for users of a model with several directions."""
    names = [f"<tag:{name}>" for name in targets_of(settings.data)]
    return [f"put the language to translate into before each text, as {' or '.join(names)}"] if names else []


def layers_of(stack: Stack) -> list[Layer]:
    """Returns the layers of a stack with their type, for type checkers."""
    return cast("list[Layer]", list(stack.layers))
