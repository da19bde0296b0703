"""Checks of output paths before any work starts: outputs must be writable and must not overwrite inputs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import InputError

SAVING_VERBS = ("train", "distill", "demo")
"""Verbs that save their work when they are interrupted, and print a message about it themselves."""


def require_output(output: Path | str | None, inputs: Iterable[Path | str | None]) -> None:
    """Raises an error if the output file cannot be written, or is also an input; None means standard output.

    Among the inputs, None and "-" mean standard input, and a folder is a model folder.
    """
    if output is None:
        return
    path = Path(output)
    if not str(output):
        raise InputError("-o is empty: specify a file")
    if path.is_dir() or str(output).endswith(("/", os.sep)):
        raise InputError(f"{output}: is a folder: specify a file, as in -o {path / 'FILE'}")
    for name in inputs:
        if replaces(path, name):
            raise InputError(f"{output}: this command reads this file and would overwrite it: specify another file")
    require_writable(path)


def replaces(output: Path, name: Path | str | None) -> bool:
    """Reports whether writing `output` would replace the input file `name` or a file of the model folder `name`."""
    from regard.model_folder import EVERYTHING

    if output.exists() and not output.is_file():  # a device or a pipe
        return False
    if name is not None and Path(name).is_dir():
        parts = [part for path in (output.absolute(), output.resolve()) for part in (path, *path.parents)]
        return any(part.name in EVERYTHING and identity(part.parent) == identity(name) for part in parts)
    return identity(name) is not None and identity(name) == identity(output)


def identity(name: Path | str | None) -> tuple[int, int] | None:
    """Returns the device and inode of a file, which are the same for all its names; None if it does not exist."""
    try:
        status = os.fstat(sys.stdin.fileno()) if name in (None, "-") else Path(str(name)).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def require_writable(output: Path) -> None:
    """Raises an error if the folder of the output is not writable."""
    if output.exists() and not output.is_file():
        return
    folder = next(each for each in output.absolute().parents if os.path.lexists(each))
    if not folder.is_dir():
        raise InputError(f"{output}: cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{output}: cannot be written: no write permission for {folder}")


@contextmanager
def report_outputs(arguments: argparse.Namespace) -> Iterator[None]:
    """Prints which folder was created for the output and, after Ctrl-C, whether the output was written."""
    output, report = (getattr(arguments, name, None) for name in ("output", "report"))
    above = [folder for name in (output, report) if name for folder in Path(name).absolute().parents]
    missing = [folder for folder in sorted(set(above)) if not os.path.lexists(folder)]
    before = identity(output) if output else None
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args or not output or arguments.verb in SAVING_VERBS:
            raise
        state = "written" if identity(output) != before else "unchanged" if before else "not written"
        raise KeyboardInterrupt(f"stopped; {output} is {state}") from None
    finally:
        if created := [folder for folder in missing if folder.is_dir()]:
            print(f"regard: created the folder {created[-1]}", file=sys.stderr)
