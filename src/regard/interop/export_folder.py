"""The folder that an export makes: written whole or not at all, with the vocabulary beside the model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from regard.atomic_files import explain_write_error, write_text
from regard.errors import InputError, ModelError
from regard.model.layers import Layer
from regard.model.positions import sinusoids
from regard.model.transformer import Stack
from regard.settings import ModelSettings, Settings
from regard.tokens.directions import targets_of
from regard.tokens.tokenizer import Vocabularies

README = "README.md"
TOKENIZERS = ("tokenizer.json", "source.json", "target.json")
SINUSOIDS = 1024
"""Positions written at least where they are sines, which have no end; other programs stop where the table does."""


def sine_table(settings: ModelSettings) -> Tensor:
    """Returns the sines and cosines [N, D] of positions in the layout of this model."""
    halves = settings.positions == "sinusoidal-halves"
    return sinusoids(max(SINUSOIDS, settings.max_length), settings.width, halves)


def require(library: str, extra: str) -> Any:
    """Imports a library; raises an error that says how to install it."""
    try:
        return import_module(library)
    except ModuleNotFoundError:
        raise InputError(f"this needs the library {library}: pip install 'regard[{extra}]'") from None


@contextmanager
def whole_folder(output: Path, model: Path, files: Sequence[str], *, overwrite: bool) -> Iterator[Path]:
    """Yields a new folder to fill, which replaces `output` if nothing went wrong.

    `files` are the names that such an export may have: a folder that holds anything else is never replaced.
    """
    output = output.resolve()
    staging = output.with_name(f".{output.name}.{os.getpid()}.new")
    try:
        refuse_in_the_way(output, model.resolve(), files, overwrite=overwrite)
        staging.mkdir(parents=True)
        yield staging
        put_in_place(staging, output)
    except OSError as error:
        told = f"{output}: cannot be written ({explain_write_error(error)}); what was there before is unchanged"
        raise ModelError(told) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def refuse_in_the_way(output: Path, model: Path, files: Sequence[str], *, overwrite: bool) -> None:
    """Refuses an output that is a file, the model itself, in use, or of other things than an earlier export."""
    if output.exists() and not output.is_dir():
        raise ModelError(f"{output}: is a file; name a folder to write to")
    if output == model or output in model.parents:
        raise ModelError(f"{output}: is or holds the model itself; name another folder to write to")
    found = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    if found and not overwrite:
        raise ModelError(f"{output}: is not empty; name another folder, or replace it with --overwrite")
    strangers = [name for name in found if name not in files]
    if strangers:
        raise ModelError(f"{output}: holds {strangers[0]}, which is no part of an export; name another folder")


def put_in_place(staging: Path, output: Path) -> None:
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


def write_tokenizers(folder: Path, vocabularies: Vocabularies) -> tuple[str, str]:
    """Writes plain files of Hugging Face `tokenizers`; returns the names of the source's and the target's."""
    both, source, target = TOKENIZERS
    if vocabularies.source is vocabularies.target:
        source = target = both
    write_text(folder / source, vocabularies.source.model.to_str())
    write_text(folder / target, vocabularies.target.model.to_str())
    return source, target


def tag_notes(settings: Settings) -> list[str]:
    """Returns the section of README.md about a model with several directions."""
    names = [f"<tag:{name}>" for name in targets_of(settings.data)]
    return [f"put the language to translate into before each text, as {' or '.join(names)}"] if names else []


def layers_of(stack: Stack) -> list[Layer]:
    """Returns the layers of a stack with their type; for the type checker, a ModuleList holds any modules."""
    return cast("list[Layer]", list(stack.layers))
