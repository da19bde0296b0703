"""Reads files from untrusted sources: only regular files of limited size that do not link outside their folder."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from regard.errors import ModelError

LARGEST_TOKENIZER = 128_000_000
"""Maximum size of a `tokenizer.json` in bytes."""


def require_regular(path: Path, folder: Path | None = None, most: int | None = None) -> None:
    """Raises ModelError for devices and pipes, files of more than `most` bytes, and links that leave `folder`."""
    try:
        status = path.stat()
        leaves = folder is not None and not path.resolve().is_relative_to(folder.resolve())
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path}: is not a regular file: copy the original file here")
    if leaves:
        raise ModelError(f"{path}: is a link to a file outside its folder: copy that file here")
    if most is not None and status.st_size > most:
        raise ModelError(f"{path}: too large: {status.st_size:,} bytes, but such a file may have at most {most:,}")


def read_limited(path: Path, most: int, folder: Path | None = None) -> bytes:
    """Returns the content of a regular file of at most `most` bytes."""
    require_regular(path, folder, most)
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def read_header(path: Path, folder: Path | None = None) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor in a safetensors file, without NumPy or PyTorch."""
    require_regular(path, folder)
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > LONGEST_HEADER:
                raise ModelError(f"{path}: damaged or unreadable (a header of {size:,} bytes)")
            header = dict(json.loads(file.read(size)))
            end = file.seek(0, os.SEEK_END)
        tensors = {name: about for name, about in header.items() if name != "__metadata__"}
        if 8 + size + max((about["data_offsets"][1] for about in tensors.values()), default=0) != end:
            raise ModelError(f"{path}: damaged or unreadable (its header describes another size)")
        return {name: tuple(map(int, about["shape"])) for name, about in tensors.items()}
    except (OSError, ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise ModelError(f"{path}: damaged or unreadable ({error})") from None


LONGEST_HEADER = 100_000_000
"""Maximum size of a safetensors header in bytes, the same as in the safetensors library."""


def read_json(path: Path, most: int, folder: Path | None = None) -> Any:
    """Returns the content of a JSON file of at most `most` bytes."""
    content = read_limited(path, most, folder)
    try:
        return parse_json(content)
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: damaged: not JSON; train again or restore the file") from None


def parse_json(content: bytes) -> Any:
    """Parses JSON; also raises ValueError for lone surrogates, which are not valid Unicode."""
    parsed = json.loads(content.decode("utf-8"))
    if b"\\ud" in content or b"\\uD" in content:  # lone surrogates can only come from escapes
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    return parsed
