"""Remote files: s3://, gs://, hf://, https:// and all other protocols of fsspec.

`as_path` converts a name to a path that the readers accept. For local names, it neither imports fsspec nor uses the
network.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from regard.errors import DataError, RegardError

SCHEME = re.compile(r"(?:[a-z][\w+.-]*::)*([a-z][\w+.-]+):/+", re.IGNORECASE)
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hf": "hf", "http": "http", "https": "http"}
"""Optional extras of Regard, such as regard[s3], that install the package for a protocol."""
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp"}
REFUSED = re.compile(r"credential|denied|forbidden|unauthori[sz]ed|\b40[13]\b|gated|permission", re.IGNORECASE)

T = TypeVar("T")


def as_path(name: Path | str) -> Path:
    """Converts a name to a path, which is a `RemotePath` if the name begins with a protocol such as s3://."""
    if isinstance(name, RemotePath):
        return name
    text = str(name)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    scheme = SCHEME.match(text)
    if scheme is None or ("://" not in scheme[0] and (isinstance(name, str) or name.exists())):
        return Path(name)
    return RemotePath(f"{scheme[0].rstrip('/')}//{text[scheme.end() :]}")  # pathlib replaces // by /


if TYPE_CHECKING:
    _LocalPath = Path
else:
    _LocalPath = type(Path())  # the path class of this operating system


class RemotePath(_LocalPath):
    """A path on another machine, which can be opened and listed like a local path."""

    address: str

    def __new__(cls, address: str, *_: object) -> RemotePath:
        path = super().__new__(cls, address)
        path.address = address
        return path

    def __init__(self, address: str, *_: object) -> None:
        if sys.version_info >= (3, 12):  # these versions build the path in __init__
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
        """Opens the file for reading bytes; remote files are read-only."""
        assert mode == "rb", "remote files are read-only"
        file = self._request(lambda system, path: system.open(path, "rb"))
        return io.BufferedReader(_RawFile(file, self), 1 << 20)

    def exists(self, **_: Any) -> bool:
        return self._request(lambda system, path: bool(system.exists(path)))

    def is_dir(self, **_: Any) -> bool:
        return self._request(lambda system, path: bool(system.isdir(path)))

    def is_file(self, **_: Any) -> bool:
        return self._request(lambda system, path: bool(system.isfile(path)))

    def files_below(self) -> list[Path]:
        """Returns the files in this folder and its subfolders."""
        return self._list(lambda system, path: list(system.find(path)))

    def matching_files(self) -> list[Path]:
        """Returns the files that match this pattern."""
        return self._list(lambda system, path: [each for each in system.glob(path) if system.isfile(each)])

    def _list(self, find: Callable[[Any, str], list[str]]) -> list[Path]:
        prefix, _, last = self.address.rpartition("::")  # in simplecache::s3://, only s3:// can list files
        names = RemotePath(last)._request(
            lambda system, path: [system.unstrip_protocol(name) for name in sorted(find(system, path))]
        )
        return [RemotePath(f"{prefix}::{name}" if prefix else name) for name in names]

    def _request(self, request: Callable[[Any, str], T]) -> T:
        """Calls a function with the fsspec file system and the path in it."""
        protocol = (SCHEME.match(self.address) or [""] * 2)[1].lower()
        with self.named_errors():
            try:
                from fsspec.core import url_to_fs
            except ImportError:
                raise DataError("remote files need fsspec: install it with pip install fsspec", self) from None
            try:
                system, path = url_to_fs(self.address)
            except ImportError as error:
                extra = EXTRAS.get(protocol)
                package = f"{PACKAGES[extra]}: {advice(extra)}" if extra else f"a package ({_one_line(error)})"
                raise DataError(f"{protocol}:// needs {package}", self) from None
            except ValueError as error:
                raise DataError(f"cannot be read: {_one_line(error)}", self) from None
            return request(system, str(path))

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Converts any exception of a file system to a one-line error that names the file."""
        try:
            yield
        except RegardError:
            raise
        except Exception as error:  # noqa: BLE001 (each file system has its own exceptions)
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> DataError:
        if isinstance(error, FileNotFoundError):
            return DataError("the file does not exist", self)
        kind, reason = type(error).__name__, _one_line(error)[:200]
        if isinstance(error, PermissionError) or REFUSED.search(kind) or REFUSED.search(reason):
            return DataError(f"access was denied ({kind}: {reason}): check your credentials and permissions", self)
        return DataError(f"cannot be read ({kind}: {reason})", self)


class _RawFile(io.RawIOBase):
    """Adapts a file of fsspec to io.BufferedReader; errors during reading name the file."""

    def __init__(self, file: BinaryIO, path: RemotePath) -> None:
        self.file, self.path = file, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self.path.named_errors():
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def advice(extra: str) -> str:
    """Returns the command that installs an extra of Regard."""
    return f"install it with pip install 'regard[{extra}]'"
