"""Translated files that wait to be fetched, in a private folder, each for some minutes.

Nothing is known but what is in the folder: servers that share one serve each other's files, and after a kill the next
server deletes what was left.
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

KEPT = re.compile(r"[0-9a-f]{64}")
OURS = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}\.\w+")
LEFT_OVER = 86_400.0
"""Seconds after which a file that was sent is deleted, if the server that was given it has not done so."""


class FileShelf:
    """Keeps files under names that nobody can guess; the names that clients give never become paths."""

    def __init__(
        self, most: int, seconds: float, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Uses `folder`, or else a private temporary folder whose files are deleted with this shelf."""
        self.most, self.seconds, self.clock = most, seconds, clock
        self.shared = folder is not None
        self._folder = checked(folder) if folder else None
        self._put: set[Path] = set()

    @property
    def folder(self) -> Path:
        """The folder of the files; our own is created when it is first needed."""
        if self._folder is None:
            self._folder = own_folder()
        return self._folder

    def fresh(self, suffix: str) -> Path:
        """Returns a path for a new file, with one of our suffixes rather than the client's."""
        return self.folder / f"{uuid.uuid4().hex}{suffix}"

    def put(self, data: bytes, name: str) -> str:
        """Keeps a file; under the name that is given back it can be fetched."""
        self.sweep()
        if len(data) > self.most - sum(status.st_size for _, status in self._files()):
            raise RefusedError(429, "Slowdown: too many files wait to be fetched", 60.0)
        token = f"{uuid.uuid4()}.{name}"
        path, half = self._place(token), self.fresh(".new")
        half.write_bytes(data)
        os.utime(half, (self.clock(), self.clock()))
        half.replace(path)
        self._put.add(path)
        return token

    def get(self, token: str) -> tuple[str, bytes] | None:
        """Returns the name and the content of a file, or None if it was deleted."""
        self.sweep()
        try:
            return token.partition(".")[2], self._place(token).read_bytes()
        except OSError:
            return None

    def sweep(self) -> None:
        """Deletes what has waited long enough."""
        if self._folder is None:
            return
        now = self.clock()
        for path, status in self._files():
            if status.st_mtime + (self.seconds if KEPT.fullmatch(path.name) else LEFT_OVER) <= now:
                path.unlink(missing_ok=True)
                self._put.discard(path)

    def close(self) -> None:
        """Deletes what was put here, unless other servers can give it out."""
        for path in () if self.shared else self._put:
            path.unlink(missing_ok=True)

    def _place(self, token: str) -> Path:
        return self.folder / hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yields the files that servers have put into the folder, and no others."""
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # another server has deleted it
                if OURS.fullmatch(path.name):
                    yield path, path.lstat()


def own_folder() -> Path:
    """Returns a folder for temporary files that only this user can read."""
    folder = Path(tempfile.gettempdir()) / f"regard-{getattr(os, 'getuid', os.getpid)()}"
    try:
        checked(folder).chmod(0o700)
    except (DataError, OSError):  # somebody else has made it
        return Path(tempfile.mkdtemp(prefix="regard-"))
    return folder


def checked(folder: Path) -> Path:
    """Returns the folder, created if it is missing; refuses one that belongs to another user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != getattr(os, "getuid", lambda: status.st_uid)():
            raise DataError("is not a folder of this user: use another one for files", folder)
    except OSError as error:
        raise DataError(f"cannot be used for files ({error.strerror})", folder) from None
    return folder
