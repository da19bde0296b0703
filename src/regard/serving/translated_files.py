"""Stores translated files in a private folder for some minutes, until clients download them.

All state is in the folder: servers that share it serve each other's files, and if a server is killed, the next one
deletes its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from regard.errors import DataError
from regard.serving.refusals import RefusedError

TRANSLATED = re.compile(r"[0-9a-f]{64}")
TEMPORARY = re.compile(r"[0-9a-f]{32}\.\w+")
TEMPORARY_SECONDS = 86_400.0
"""Seconds after which uploaded files are deleted that a killed server has left behind."""


class FileStore:
    """Stores files under names that cannot be guessed; names from clients are never used as paths."""

    def __init__(
        self, max_bytes: int, seconds: float, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Stores files in `folder` or, by default, in a private temporary folder until the server stops."""
        self.max_bytes, self.seconds, self.clock = max_bytes, seconds, clock
        self.shared = folder is not None
        self._folder = own_folder(folder) if folder else None
        self._files: set[Path] = set()  # files stored by this server

    @property
    def folder(self) -> Path:
        """The folder of the files; a temporary folder is created on first use."""
        if self._folder is None:
            self._folder = temporary_folder()
        return self._folder

    def fresh(self, suffix: str) -> Path:
        """Returns a path for a new temporary file; `suffix` must not come from a client."""
        return self.folder / f"{uuid.uuid4().hex}{suffix}"

    def put(self, data: bytes, name: str) -> str:
        """Stores a file and returns the token for downloading it."""
        self.sweep()
        if len(data) > self.max_bytes - sum(status.st_size for _, status in self._all_files()):
            raise RefusedError(429, "Slowdown: too many files are waiting to be downloaded", 60.0)
        token = f"{uuid.uuid4()}.{name}"
        path, temporary = self._path(token), self.fresh(".new")
        temporary.write_bytes(data)
        os.utime(temporary, (self.clock(), self.clock()))
        temporary.replace(path)
        self._files.add(path)
        return token

    def get(self, token: str) -> tuple[str, bytes] | None:
        """Returns the name and content of a file, or None if it does not exist."""
        self.sweep()
        try:
            return token.partition(".")[2], self._path(token).read_bytes()
        except OSError:
            return None

    def sweep(self) -> None:
        """Deletes expired files."""
        for path, status in self._all_files() if self._folder else ():
            if (
                status.st_mtime + (self.seconds if TRANSLATED.fullmatch(path.name) else TEMPORARY_SECONDS)
                <= self.clock()
            ):
                path.unlink(missing_ok=True)
                self._files.discard(path)

    def close(self) -> None:
        """Deletes the files of this server, unless other servers share the folder."""
        for path in () if self.shared else self._files:
            path.unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self.folder / hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()

    def _all_files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # another server has deleted it
                if TRANSLATED.fullmatch(path.name) or TEMPORARY.fullmatch(path.name):
                    yield path, path.lstat()


def temporary_folder() -> Path:
    """Returns a temporary folder that only the current user can read."""
    folder = Path(tempfile.gettempdir()) / f"regard-{getattr(os, 'getuid', os.getpid)()}"
    try:
        own_folder(folder).chmod(0o700)
    except (DataError, OSError):  # another user has created it
        return Path(tempfile.mkdtemp(prefix="regard-"))
    return folder


def own_folder(folder: Path) -> Path:
    """Creates a folder if it does not exist; raises an error if it belongs to another user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise DataError(f"cannot store files here ({error.strerror})", folder) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != getattr(os, "getuid", lambda: status.st_uid)():
        raise DataError("not a folder that belongs to you: use another folder for files", folder)
    return folder
