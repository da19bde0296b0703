"""Writes files atomically: readers see the old file or the complete new one, even after a crash or a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from regard.errors import ModelError


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode("utf-8")))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path and renames the result to `path` once it is on disk."""
    if path.is_dir():
        raise ModelError(f"{path}: is a folder, not a file")
    special = path.exists() and not path.is_file()  # write to a pipe or a device directly
    temporary = path if special else path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        if not special:
            temporary.chmod(0o666 & ~_umask())  # safetensors creates files that only their owner may read
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException as error:
        if not special:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            raise ModelError(
                f"{path}: cannot be written ({explain_write_error(error)}); the previous content is unchanged"
            ) from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(path: Path) -> None:
    """Makes a rename in this folder survive a power failure, if the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def explain_write_error(error: Exception) -> str:
    """Describes why a write failed."""
    if isinstance(error, OSError) and error.errno is not None:
        text, full = os.strerror(error.errno), error.errno in (errno.ENOSPC, errno.EDQUOT)
    else:
        text = str(error)
        full = "No space left" in text or "os error 28" in text
    return "the disk is full: free some space and try again" if full else text
