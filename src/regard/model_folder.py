"""A model folder: all that is needed to go from text to text, written so that no kill can spoil it.

model.toml            settings and languages
weights.safetensors   parameters, by name
tokenizer.json        one vocabulary, or two
card.md               for people: data, scores, date, version
confidence.json       from log-probabilities to how far a translation can be trusted
shortlist.safetensors the tokens that each token of a source may become, if `regard shortlist` has learnt them
memory.jsonl.gz       the pairs it was trained on, if data.memory asks for them: a translation memory
log.jsonl             the course of training, a line an event
history/              weights kept along the way, if training.history asks for them
training/             what --resume needs; safe to delete when training is over
native/               weights as the native engine wants them; made when it is first used, safe to delete
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.atomic_files import explain_write_error
from regard.errors import ModelError, RegardError
from regard.foreign_files import identify
from regard.settings import Settings
from regard.settings.resolution import load_recorded

EVERYTHING = (
    "model.toml",
    "weights.safetensors",
    "tokenizer.json",
    "card.md",
    "confidence.json",
    "shortlist.safetensors",
    "memory.jsonl.gz",
    "log.jsonl",
    "history",
    "training",
    "native",
)
SETTINGS, WEIGHTS, TOKENIZER, CARD, CONFIDENCE, SHORTLIST, MEMORY, LOG, HISTORY, TRAINING, NATIVE = EVERYTHING
SCALE = ".scale"
"""In a file of weights, what follows the name of an int8 tensor in the name of its scales."""


def check_folder(path: Path) -> None:
    """Refuses a folder without a model in it that is ready to use."""
    check_settings(path)
    if not (path / WEIGHTS).is_file() and not (path / TRAINING).is_dir():
        raise ModelError(f"{path}: has no {WEIGHTS}: copy the whole folder again")
    if not (path / WEIGHTS).is_file():
        if not any((path / name).exists() for name in (TRAINING, f"{TRAINING}.new")):
            raise ModelError(f"{path}: has no {WEIGHTS}: copy the whole folder again")
        raise ModelError(
            f"{path}: has no {WEIGHTS} yet: wait until it is trained, or go on with regard train --resume {path}"
        )


def check_settings(path: Path) -> None:
    """Refuses what is not a model folder, and says what it is instead."""
    try:
        if (path / SETTINGS).is_file():
            return
        there = path.exists()
    except OSError as error:  # such as a text in place of a name
        raise ModelError(f"{path}: no such folder ({error.strerror})") from None
    if not there:
        raise ModelError(f"{path}: no such folder")
    what = f"not a Regard model (it has no {SETTINGS})" if path.is_dir() else "a file, not a model folder"
    said = identify(path)
    raise ModelError(f"{path}: {what}: {said}" if said else f"{path}: {what}")


def read_settings(path: Path) -> Settings:
    """The settings that a model folder records."""
    check_settings(path)
    try:
        return load_recorded(path / SETTINGS)
    except RegardError as error:
        raise ModelError(f"{path}: damaged, or written by another version of Regard: {error}") from None


def last_event(path: Path) -> dict[str, Any]:
    """Returns the last event in the log of a model folder; empty if there is none, or a kill cut it off."""
    try:
        text = (path / LOG).read_text(encoding="utf-8", errors="replace")
        event: dict[str, Any] = json.loads(text.rstrip("\n").split("\n")[-1])
    except (OSError, ValueError):
        return {}
    return event


def has_finished(path: Path) -> bool:
    """Says whether the run in a folder came to its end, and was not gone on with."""
    return last_event(path).get("event") == "Finished"


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Refuses a folder that another process is training in; when a process dies, the system takes its lock back.

    Makes the folder, and takes it away again if nothing was put into it.
    """
    if path.exists() and not path.is_dir():
        raise ModelError(f"{path}: is a file, not a folder")
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({explain_write_error(error)})") from None
    try:
        _lock(handle, path)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            for folder in made:
                folder.rmdir()


def _lock(handle: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ModelError(
            f"{path}: another process is training here: wait until it ends, or choose another folder with -o"
        ) from None
    except OSError:  # a file system without locks
        return
