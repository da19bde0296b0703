"""Files that are not on this machine's disk: s3://, gs://, hf://, https:// and whatever else fsspec reads.

`located` makes of a name what the readers take for a path; nothing is imported, and nobody asked, for a plain one.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from regard.errors import DataError

SCHEME = re.compile(r"(?:[a-z][\w+.-]*::)*([a-z][\w+.-]+):/+", re.IGNORECASE)
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hf": "hf", "http": "http", "https": "http"}
"""Which extra brings what reads a protocol."""
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp"}
REFUSED = re.compile(r"credential|denied|forbidden|unauthori[sz]ed|\b40[13]\b|gated|permission", re.IGNORECASE)

T = TypeVar("T")


def as_path(name: Path | str) -> Path:
    """A file by its name: one on the disk, or one elsewhere, if it begins like s3://."""
    if isinstance(name, RemotePath):
        return name
    text = str(name)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    found = SCHEME.match(text)
    if found is None or ("://" not in found[0] and (isinstance(name, str) or name.exists())):
        return Path(name)
    return RemotePath(f"{found[0].rstrip('/')}//{text[found.end() :]}")  # pathlib makes one slash of two


if TYPE_CHECKING:
    _LocalPath = Path
else:
    _LocalPath = type(Path())  # that of this system


class RemotePath(_LocalPath):
    """A path whose file is asked of another machine: it is opened and listed as one of the disk is."""

    address: str

    def __new__(cls, address: str, *_: object) -> RemotePath:
        made = super().__new__(cls, address)
        made.address = address
        return made

    def __init__(self, address: str, *_: object) -> None:
        if sys.version_info >= (3, 12):  # where paths are made here
            super().__init__(address)

    def __str__(self) -> str:
        return self.address

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath, (self.address,)

    def __hash__(self) -> int:
        return hash(self.address)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.address == other.address

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)

    @property
    def name(self) -> str:
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.address.rstrip("/").rpartition("/")[0])

    def with_suffix(self, suffix: str) -> RemotePath:
        return RemotePath(self.address.removesuffix(self.suffix) + suffix)

    def resolve(self, strict: bool = False) -> RemotePath:
        return self

    def absolute(self) -> RemotePath:
        return self

    def open(self, mode: str = "rb", *_: Any, **__: Any) -> Any:
        """The bytes of the file, as they come; from elsewhere, nothing is written."""
        assert mode == "rb", "remote files are read only"
        system, path = self._system()
        file = self._asked(lambda: system.open(path, "rb"))
        return io.BufferedReader(_Raw(file, self), 1 << 20)

    def exists(self, **_: Any) -> bool:
        system, path = self._system()
        return self._asked(lambda: bool(system.exists(path)))

    def is_dir(self, **_: Any) -> bool:
        system, path = self._system()
        return self._asked(lambda: bool(system.isdir(path)))

    def is_file(self, **_: Any) -> bool:
        system, path = self._system()
        return self._asked(lambda: bool(system.isfile(path)))

    def below(self) -> list[Path]:
        """The files in the folder that this is, and in those below it."""
        return self._listed(lambda system, path: system.find(path))

    def fitting(self) -> list[Path]:
        """The files that fit the pattern that this is."""
        return self._listed(lambda system, path: [each for each in system.glob(path) if system.isfile(each)])

    def _listed(self, ask: Callable[[Any, str], list[str]]) -> list[Path]:
        prefix, _, last = self.address.rpartition("::")  # of simplecache::s3://, the second is asked
        system, path = RemotePath(last)._system()
        names = self._asked(lambda: sorted(ask(system, path)))
        return [RemotePath(f"{prefix}::{name}" if prefix else name) for name in map(system.unstrip_protocol, names)]

    def _system(self) -> tuple[Any, str]:
        """What reads it, and its name there."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise DataError("needs fsspec: install it with pip install fsspec", self) from None
        protocol = (SCHEME.match(self.address) or [""] * 2)[1].lower()
        try:
            system, path = url_to_fs(self.address)
        except ImportError as error:
            extra = EXTRAS.get(protocol)
            what = f"{PACKAGES[extra]}: {advice(extra)}" if extra else f"a package ({' '.join(str(error).split())})"
            raise DataError(f"{protocol}:// needs {what}", self) from None
        except ValueError as error:
            raise DataError(f"cannot be read: {' '.join(str(error).split())}", self) from None
        except Exception as error:  # noqa: BLE001 (each file system has errors of its own)
            raise self._fault(error) from None
        return system, str(path)

    def _asked(self, ask: Callable[[], T]) -> T:
        """What another machine answers; what goes wrong there in one line."""
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 (each file system has errors of its own)
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> DataError:
        told = " ".join(f"{error}".split())[:200]
        if isinstance(error, FileNotFoundError):
            return DataError("there is no such object", self)
        kind = type(error).__name__
        if isinstance(error, PermissionError) or REFUSED.search(kind) or REFUSED.search(told):
            return DataError(f"access is refused ({kind}: {told}): check the credentials, and what they allow", self)
        return DataError(f"cannot be read ({kind}: {told})", self)


class _Raw(io.RawIOBase):
    """A file of a file system as the readers of Python want it: what goes wrong while it is read is told alike."""

    def __init__(self, file: BinaryIO, path: RemotePath) -> None:
        self.file, self.path = file, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self.file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.path._asked(lambda: self.file.seek(offset, whence))

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        found = self.path._asked(lambda: self.file.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()


def advice(extra: str) -> str:
    return f"install it with pip install 'regard[{extra}]'"
