"""Exceptions for mistakes that the user can correct.

RegardError
├── SettingsError   a setting is unknown, of the wrong type, or contradicts another
├── DataError       a corpus file is missing, damaged or empty; carries the path and the line
├── ModelError      a model folder is missing, damaged, from another program, or would be overwritten
└── InputError      a model cannot use a text or an option

Each message says what is wrong, where, and what to do. The command line prints it on one line and exits with status 2.
Any other exception is a bug.
"""

from __future__ import annotations

from pathlib import Path


class RegardError(Exception):
    """A mistake that the user can correct.

    >>> try:
    ...     translator = regard.load("runs/misspelt")
    ... except regard.RegardError as error:
    ...     print(error)
    runs/misspelt: no such folder
    """

    page = ""  # page of the documentation that explains these errors


class SettingsError(RegardError):
    """A setting is unknown, of the wrong type, or contradicts another.

    >>> try:
    ...     translator("A dog runs.", baem=5)
    ... except regard.SettingsError as error:
    ...     print(error)
    """

    page = "settings.md"


class DataError(RegardError):
    """A corpus file is missing, damaged or empty.

    >>> try:
    ...     events = list(regard.train(["missing.en", "missing.de"], "runs/new"))
    ... except regard.DataError as error:
    ...     print(error.path, error.line)
    """

    page = "formats.md"

    def __init__(self, message: str, path: Path | str | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)
        self.path, self.line = path, line


class ModelError(RegardError):
    """A model folder is missing, damaged, from another program, or would be overwritten.

    >>> try:
    ...     translator = regard.load("runs/misspelt")
    ... except regard.ModelError as error:
    ...     print(error)
    runs/misspelt: no such folder
    """

    page = "model-folder.md"


class InputError(RegardError):
    """A model cannot use a text or an option.

    >>> try:
    ...     translator(["A dog runs."])
    ... except regard.InputError as error:
    ...     print(error)
    a translator takes one text (a str), not a list: for several texts, call translator.translate
    """
