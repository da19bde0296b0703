"""Names, checks and locks model folders, which contain everything that a model needs to process text."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.atomic_files import explain_write_error
from regard.errors import ModelError, RegardError
from regard.files_of_other_programs import identify
from regard.settings import Settings
from regard.settings.recorded_settings import LARGEST as LARGEST_SETTINGS, load_recorded
from regard.untrusted_files import LARGEST_TOKENIZER, read_limited, require_regular

EVERYTHING = (
    SETTINGS := "model.toml",  # settings and languages
    WEIGHTS := "weights.safetensors",  # parameters, by name
    TOKENIZER := "tokenizer.json",  # one vocabulary, or two
    CARD := "card.md",  # model card for readers: data, scores, date, version
    CONFIDENCE := "confidence.json",  # calibration curve from log-probability to confidence
    CANARY := "canary.json",  # example inputs and outputs, with which a server checks that the model works
    SHORTLIST := "shortlist.safetensors",  # candidate target tokens for each source token, from `regard shortlist`
    MEMORY := "memory.jsonl.gz",  # translation memory of the training pairs, with data.memory
    LOG := "log.jsonl",  # training events, one per line
    HISTORY := "history",  # folder: snapshots of the weights during training, with training.history
    TRAINING := "training",  # folder: state for --resume; safe to delete once training is done
    NATIVE := "native",  # folder: weights packed for the native engine on first use; safe to delete
    MANIFEST := "manifest.json",  # SHA-256 of settings, weights, tokenizer, confidence, shortlist and memory
)
SCALE = ".scale"
"""Suffix of the tensors that hold the scales of int8 tensors: `name` is scaled by `name.scale`."""
LARGEST_CARD, LARGEST_LOG = 1_000_000, 200_000_000
"""Maximum file sizes in bytes."""
LIMITS = {
    SETTINGS: LARGEST_SETTINGS,
    TOKENIZER: LARGEST_TOKENIZER,
    CONFIDENCE: 100_000,
    SHORTLIST: 1_000_000_000,  # 250 million tokens
    MEMORY: 200_000_000,
}
"""Maximum sizes in bytes of files that the manifest lists; weights are compared with the model's shapes instead."""


def check_folder(path: Path) -> None:
    """Raises ModelError unless the folder contains a model that is ready to use."""
    check_settings(path)
    if (path / WEIGHTS).is_file():
        return
    if not (path / TRAINING).is_dir():
        raise ModelError(f"{path}: has no {WEIGHTS}: copy the whole folder again")
    raise ModelError(
        f"{path}: has no {WEIGHTS} yet: wait until it is trained, or continue with regard train --resume {path}"
    )


def check_settings(path: Path) -> None:
    """Raises ModelError unless `path` is a model folder; the message describes what it is instead."""
    try:
        if (path / SETTINGS).is_file():
            return
        exists = path.exists()
    except OSError as error:  # for example, the path is too long
        raise ModelError(f"{path}: no such folder ({error.strerror})") from None
    if not exists:
        raise ModelError(f"{path}: no such folder")
    fault = f"not a Regard model (it has no {SETTINGS})" if path.is_dir() else "a file, not a model folder"
    description = identify(path)
    raise ModelError(f"{path}: {fault}: {description}" if description else f"{path}: {fault}")


def read_settings(path: Path) -> Settings:
    check_settings(path)
    require_regular(path / SETTINGS, path)
    try:
        return load_recorded(path / SETTINGS)
    except RegardError as error:
        raise ModelError(f"{path}: damaged, or written by another version of Regard: {error}") from None


def last_event(path: Path) -> dict[str, Any]:
    """Returns the last event in the log of a model folder, or an empty dict if it is missing or cut off."""
    try:
        text = read_limited(path / LOG, LARGEST_LOG).decode("utf-8", errors="replace")
        event: dict[str, Any] = json.loads(text.rstrip("\n").split("\n")[-1])
    except (ModelError, ValueError, RecursionError):
        return {}
    return event


def has_finished(path: Path) -> bool:
    """Reports whether the last training run in a folder has finished."""
    return last_event(path).get("event") == "Finished"


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Locks a folder for training; raises ModelError if another process has locked it.

    Creates the folder if needed, and removes it again if it stays empty. The lock ends with the process.
    """
    if path.exists() and not path.is_dir():
        raise ModelError(f"{path}: is a file, not a folder")
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
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
        with contextlib.suppress(OSError):  # rmdir keeps folders that are not empty
            for folder in created:
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
