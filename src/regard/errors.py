"""What can go wrong for a user, as one tree.

RegardError
├── SettingsError   a setting is unknown, of the wrong type, or contradicts another
├── DataError       a corpus file is missing, damaged or empty; carries the path and the line
├── ModelError      a model folder is missing, damaged, foreign, or in the way
└── InputError      a text or an option given to a model cannot be used

Each message says what is wrong, where, and what to do. The command line prints it on one line and
exits with 2; anything that is not a RegardError is a bug.
"""

from __future__ import annotations

from pathlib import Path


class RegardError(Exception):
    """A mistake that the user can mend."""

    page = ""  # of the documentation that helps to mend it


class SettingsError(RegardError):
    """A setting is unknown, of the wrong type, or contradicts another."""

    page = "settings.md"


class DataError(RegardError):
    """A corpus file is missing, damaged or empty."""

    page = "formats.md"

    def __init__(self, message: str, path: Path | str | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)
        self.path, self.line = path, line


class ModelError(RegardError):
    """A model folder is missing, damaged, foreign, or in the way."""

    page = "model-folder.md"


class InputError(RegardError):
    """A text or an option given to a model cannot be used."""
