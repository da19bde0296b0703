"""Where a command writes: never over what it reads, and what would fail at the end is refused at the beginning."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import InputError

Identity = tuple[int, int]


def require_file(output: Path | str, reads: Iterable[Path | str | None]) -> None:
    """Refuses an output file that cannot be written, or that is one of the files that the command reads.

    Of `reads`, None and "-" are standard input, and a folder is that of a model.
    """
    path = Path(output)
    if not str(output):
        raise InputError("-o has no name: name a file")
    if path.is_dir() or str(output).endswith(("/", os.sep)):
        raise InputError(f"{output}: is a folder: name a file, as in -o {path / 'FILE'}")
    for name in reads:
        if replaces(path, name):
            raise InputError(f"{output}: this command reads it, and would write over it: name another file")
    require_writable(path)


def replaces(output: Path, name: Path | str | None) -> bool:
    """Whether writing `output` would replace a file that is read, by whatever name, or a part of a model."""
    from regard.model_folder import EVERYTHING

    if output.exists() and not output.is_file():  # a device or a pipe
        return False
    if name is not None and Path(name).is_dir():
        parts = [part for path in (output.absolute(), output.resolve()) for part in (path, *path.parents)]
        return any(part.name in EVERYTHING and identity(part.parent) == identity(name) for part in parts)
    found = identity(name)
    return found is not None and found == identity(output)


def identity(name: Path | str | None) -> Identity | None:
    """What is the same for all names of a file; None for one that is not on the disk."""
    try:
        status = os.fstat(sys.stdin.fileno()) if name in (None, "-") else Path(str(name)).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def require_writable(output: Path) -> None:
    """Refuses a place where nothing can be written."""
    if output.exists() and not output.is_file():
        return
    folder = next(each for each in output.absolute().parents if os.path.lexists(each))
    if not folder.is_dir():
        raise InputError(f"{output}: cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{output}: cannot be written: you may not write into {folder}")


@contextmanager
def followed(arguments: argparse.Namespace) -> Iterator[None]:
    """Says which folders a command made for its output, and, if it is interrupted, what became of the output."""
    output, report = (getattr(arguments, name, None) for name in ("output", "report"))
    above = [folder for name in (output, report) if name for folder in Path(name).absolute().parents]
    missing = [folder for folder in sorted(set(above)) if not os.path.lexists(folder)]
    before = identity(output) if output else None
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args or not output or arguments.verb in TRAINING:
            raise
        new = identity(output) != before
        raise KeyboardInterrupt(
            f"stopped; {output} is {'written' if new else 'as it was before' if before else 'not written'}"
        ) from None
    finally:
        made = [folder for folder in missing if folder.is_dir()]
        if made:
            print(f"regard: made the folder {made[-1]}", file=sys.stderr)


TRAINING = ("train", "distill", "demo")
"""Verbs that save what they have when they are interrupted, and say so themselves."""
