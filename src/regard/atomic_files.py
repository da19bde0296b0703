"""Writes files atomically: a reader sees the old file or the whole new one, even after a kill or a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from regard.errors import ModelError


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode("utf-8")))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path` and moves it into place once it is on the disk."""
    if path.is_dir():
        raise ModelError(f"{path}: is a folder, not a file")
    special = path.exists() and not path.is_file() and not path.is_dir()  # a pipe or a device is written to as it is
    temporary = path if special else path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        if not special:
            temporary.chmod(0o666 & ~_umask())  # safetensors makes files that nobody else may read
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException as error:
        if not special:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            message = f"{path}: cannot be written ({explain_write_error(error)}); what was there before is unchanged"
            raise ModelError(message) from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(path: Path) -> None:
    """Makes a rename in this folder survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def explain_write_error(error: Exception) -> str:
    """Returns the cause of a failed write in plain words."""
    if isinstance(error, OSError) and error.errno is not None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "the disk is full: free some space and try again" if full else os.strerror(error.errno)
    text = str(error)
    return (
        "the disk is full: free some space and try again" if "No space left" in text or "os error 28" in text else text
    )
