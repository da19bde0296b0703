"""Calls the compiled library through ctypes, from any number of threads and without the GIL."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from regard.decoding.token_shortlist import Shortlist
from regard.errors import ModelError

HERE = Path(__file__).parent
MAGIC = b"regard-6"
"""First bytes of a packed file, which include the version of its format."""
ERROR_SIZE = 200

TokenCallback = ctypes.CFUNCTYPE(c_int32, c_int32, c_int32, c_int32)


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class SearchRequest(ctypes.Structure):
    """The sources and options of a search; sentence_queues.h describes each field."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("count", c_int64),
        *_fields(c_void_p, "sources", "offsets", "limits", "uniform", "uniform_offsets", "never_generated"),
        *_fields(c_int32, "never_generated_count", "begin", "end", "beam", "rows", "best"),
        *_fields(c_int32, "top_k", "power_penalty", "alignment", "workers", "lanes", "rows_at_once"),
        *_fields(c_double, "length_penalty", "patience", "temperature", "top_p", "min_p", "repetition_penalty"),
        ("stop", c_void_p),
        ("on_token", TokenCallback),
    ]


class ShortlistArrays(ctypes.Structure):
    """A shortlist; packed_model.h describes each field."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        *_fields(c_void_p, "starts", "tokens", "common"),
        *_fields(c_int64, "starts_count", "tokens_count", "common_count"),
    ]


class SearchResult(ctypes.Structure):
    """The concatenated arrays of all outputs; python_interface.cpp describes each field."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        *_fields(POINTER(c_int32), "counts", "tokens", "token_counts"),
        ("gains", POINTER(c_float)),
        ("gain_counts", POINTER(c_int32)),
        ("scores", POINTER(c_double)),
        ("finished", POINTER(c_int32)),
        ("looks", POINTER(c_float)),
        ("sentences", c_int64),
        ("numbers", POINTER(c_int64)),
    ]


_ERROR = (c_char_p, c_int64)
_REQUEST, _RESULT = POINTER(SearchRequest), POINTER(SearchResult)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # type of the result, followed by types of the arguments
    "regard_kernels": (c_char_p, c_char_p),
    "regard_load_bytes": (c_void_p, c_void_p, c_int64, c_char_p, *_ERROR),
    "regard_unload": (None, c_void_p),
    "regard_shorten": (c_int32, c_void_p, POINTER(ShortlistArrays), *_ERROR),
    "regard_search": (_RESULT, c_void_p, _REQUEST, *_ERROR),
    "regard_release": (None, _RESULT),
    "regard_open": (c_void_p, c_void_p, _REQUEST, *_ERROR),
    "regard_submit": (c_int64, c_void_p, _REQUEST, *_ERROR),
    "regard_wait": (_RESULT, c_void_p, *_ERROR),
    "regard_cancel": (c_int32, c_void_p, c_int64),
    "regard_close": (None, c_void_p),
    "regard_free": (None, c_void_p),
}


@cache
def library() -> ctypes.CDLL | str:
    """Returns the library, or a string with the reason why it is not available."""
    paths = sorted(HERE.glob("core*.so"))
    if not paths:
        return "it was not built: no C++17 compiler was available when Regard was installed"
    try:
        loaded = ctypes.CDLL(str(paths[0]))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except OSError as error:
        return f"it cannot be loaded ({error})"
    except AttributeError:
        return "it was built by an older version of Regard: install Regard again"
    return loaded


def reason_unavailable() -> str | None:
    """Returns the reason why the native engine is not available here, or None if it is available."""
    loaded = library()
    return loaded if isinstance(loaded, str) else None


def instructions(name: str = "") -> str:
    """Returns the instruction set that the engine uses, or `name` if this machine supports it, otherwise ""."""
    loaded = library()
    return "" if isinstance(loaded, str) else str(loaded.regard_kernels(name.encode()).decode())


def _call(name: str, about: str, *arguments: Any) -> Any:
    """Calls a function of the library; raises ModelError, with the prefix `about`, if it reports an error."""
    error = ctypes.create_string_buffer(ERROR_SIZE)
    result = getattr(library(), name)(*arguments, error, ERROR_SIZE)
    if error.value:
        raise ModelError(f"{about}: {error.value.decode()}")
    return result


def _read(result: Any, read: Callable[[SearchResult], Any]) -> Any:
    """Returns `read(result)`, and releases the memory of the result."""
    try:
        return read(result.contents)
    finally:
        library().regard_release(result)  # type: ignore[union-attr]


class PackedModel:
    """A packed model, copied to memory so that later changes to its file have no effect."""

    def __init__(self, path: Path, kernels: str = "") -> None:
        self._handle = None
        if reason := reason_unavailable():
            raise ModelError(f"the native engine is not available: {reason}")
        self._unload = library().regard_unload  # type: ignore[union-attr]
        self._memory = _read_into_memory(path)
        self.size = len(self._memory)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._handle = _call("regard_load_bytes", str(path), first, self.size, kernels.encode())

    def __del__(self) -> None:
        if self._handle:
            self._unload(self._handle)

    def shorten(self, shortlist: Shortlist) -> None:
        """Restricts all outputs to the tokens that a shortlist allows for their sources."""
        self._shortlist = shortlist  # keeps the arrays alive, which the library reads
        arrays = (shortlist.starts, shortlist.tokens, shortlist.common)
        lists = ShortlistArrays(*(numbers.buffer_info()[0] for numbers in arrays), *map(len, arrays))
        _call("regard_shorten", "the shortlist cannot be used", self._handle, lists)

    def search(self, request: SearchRequest, read: Callable[[SearchResult], Any]) -> Any:
        """Runs a search, and returns `read(result)`."""
        return _read(_call("regard_search", "the native engine stopped", self._handle, request), read)

    def open(self, request: SearchRequest) -> RunningSearch:
        """Starts a search with a request's options; sentences can be added to it later."""
        return RunningSearch(self, _call("regard_open", "the native engine cannot start", self._handle, request))


def _read_into_memory(path: Path) -> mmap.mmap:
    """Reads a file into private memory, with huge pages if the system supports them."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
            count = 0
            while count < size and (more := file.readinto(memoryview(memory)[count:])):  # reads at most 2 GiB at a time
                count += more
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    return memory


class RunningSearch:
    """A running search that sentences can join; one thread calls `wait`, and finally `free`."""

    def __init__(self, packed: PackedModel, handle: int) -> None:
        self._packed, self._handle = packed, handle  # keeps the model loaded
        self._library: Any = library()

    def submit(self, request: SearchRequest) -> int:
        """Adds the sentences of a request; returns the number of the first."""
        return int(_call("regard_submit", "the native engine rejects the request", self._handle, request))

    def wait(self, read: Callable[[SearchResult], Any]) -> Any:
        """Waits until sentences are done, and returns `read(result)`; returns None once the search has ended."""
        result = _call("regard_wait", "the native engine stopped", self._handle)
        return _read(result, read) if result else None

    def cancel(self, number: int) -> bool:
        """Removes a sentence; returns False if it is already done."""
        return bool(self._library.regard_cancel(self._handle, number))

    def close(self) -> None:
        """Ends the search and `wait` immediately."""
        self._library.regard_close(self._handle)

    def free(self) -> None:
        """Frees all memory; do not call any other method afterwards."""
        self._library.regard_free(self._handle)
