"""Translated files that wait to be fetched, in a private folder, each for some minutes."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.serving.limits import RefusedError


@dataclass(frozen=True)
class Kept:
    """A file that can be fetched."""

    path: Path
    name: str  # what the client calls it; it is not the name of any file here
    size: int
    until: float


class Shelf:
    """Files by names that nobody can guess; what clients call them never becomes a path."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.seconds, self.clock = most, seconds, clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # made when it is needed
        self._kept: dict[str, Kept] = {}

    def fresh(self, suffix: str) -> Path:
        """A place for a new file, whose end is one of ours and not the client's."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / f"{uuid.uuid4().hex}{suffix}"

    def put(self, data: bytes, name: str) -> str:
        """Keeps a file; under the name that is given back it can be fetched."""
        self.sweep()
        if len(data) > self.most - sum(kept.size for kept in self._kept.values()):
            raise RefusedError(429, "Slowdown: too many files wait to be fetched", 60.0)
        path = self.fresh("")
        path.write_bytes(data)
        token = f"{uuid.uuid4()}.{name}"
        self._kept[token] = Kept(path, name, len(data), self.clock() + self.seconds)
        return token

    def get(self, token: str) -> tuple[str, bytes] | None:
        """The name and the content of a file, if it is still there."""
        self.sweep()
        kept = self._kept.get(token)
        return None if kept is None else (kept.name, kept.path.read_bytes())

    def sweep(self) -> None:
        """Deletes what has waited long enough."""
        now = self.clock()
        for token in [token for token, kept in self._kept.items() if kept.until <= now]:
            self._kept.pop(token).path.unlink(missing_ok=True)

    def close(self) -> None:
        self._kept.clear()
        if self._folder is not None:
            self._folder.cleanup()
