"""The compiled library, called through ctypes: from any number of threads, and Python's lock is not held meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from regard.decoding.token_shortlist import Shortlist
from regard.errors import ModelError

HERE = Path(__file__).parent
MAGIC = b"regard-5"
"""How a packed file begins."""
ERROR_SIZE = 200

Told = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)

_INTS, _LONGS = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64)
_FLOATS, _DOUBLES = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_double)


class Request(ctypes.Structure):
    """What to search for; search.h says what each means."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("count", ctypes.c_int64),
        ("sources", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("limits", ctypes.c_void_p),
        ("luck", ctypes.c_void_p),
        ("luck_offsets", ctypes.c_void_p),
        ("unspeakable", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("unspeakable_count", "begin", "end", "beam", "rows", "best")),
        *(
            (name, ctypes.c_int32)
            for name in ("top_k", "power_penalty", "alignment", "workers", "lanes", "rows_at_once")
        ),
        *((name, ctypes.c_double) for name in ("length_penalty", "patience", "temperature", "top_p", "min_p")),
        ("repetition_penalty", ctypes.c_double),
        ("stop", ctypes.c_void_p),
        ("told", Told),
    ]


class Lists(ctypes.Structure):
    """A shortlist; model.h says what each means."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        *((name, ctypes.c_void_p) for name in ("starts", "tokens", "common")),
        *((name, ctypes.c_int64) for name in ("starts_count", "tokens_count", "common_count")),
    ]


class Result(ctypes.Structure):
    """What was found: arrays of all outputs, one after the other."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("counts", _INTS),
        ("tokens", _INTS),
        ("token_counts", _INTS),
        ("gains", _FLOATS),
        ("gain_counts", _INTS),
        ("scores", _DOUBLES),
        ("finished", _INTS),
        ("looks", _FLOATS),
        ("sentences", ctypes.c_int64),
        ("numbers", _LONGS),
    ]


@cache
def library() -> ctypes.CDLL | str:
    """The library, or why there is none."""
    found = sorted(HERE.glob("core*.so"))
    if not found:
        return "it was not built: no C++17 compiler was there when Regard was installed"
    try:
        loaded = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"it cannot be loaded ({error})"
    loaded.regard_kernels.restype = ctypes.c_char_p
    loaded.regard_kernels.argtypes = [ctypes.c_char_p]
    loaded.regard_load.restype = ctypes.c_void_p
    loaded.regard_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64]
    loaded.regard_unload.restype = None
    loaded.regard_unload.argtypes = [ctypes.c_void_p]
    loaded.regard_search.restype = ctypes.POINTER(Result)
    loaded.regard_search.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_char_p, ctypes.c_int64]
    loaded.regard_release.restype = None
    loaded.regard_release.argtypes = [ctypes.POINTER(Result)]
    if hasattr(loaded, "regard_open"):
        _declare_live(loaded)
    if hasattr(loaded, "regard_shorten"):
        loaded.regard_shorten.restype = ctypes.c_int32
        loaded.regard_shorten.argtypes = [ctypes.c_void_p, ctypes.POINTER(Lists), ctypes.c_char_p, ctypes.c_int64]
    return loaded


def _declare_live(loaded: ctypes.CDLL) -> None:
    loaded.regard_open.restype = ctypes.c_void_p
    loaded.regard_open.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_char_p, ctypes.c_int64]
    loaded.regard_submit.restype = ctypes.c_int64
    loaded.regard_submit.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_char_p, ctypes.c_int64]
    loaded.regard_wait.restype = ctypes.POINTER(Result)
    loaded.regard_wait.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64]
    loaded.regard_cancel.restype = ctypes.c_int32
    loaded.regard_cancel.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    for end in (loaded.regard_close, loaded.regard_free):
        end.restype, end.argtypes = None, [ctypes.c_void_p]


def missing() -> str | None:
    """Why the native engine cannot be used here; none if it can."""
    found = library()
    return found if isinstance(found, str) else None


def instructions(name: str = "") -> str:
    """The set of instructions that the engine uses here, or, by name, whether this machine has it; "" if not."""
    found = library()
    return "" if isinstance(found, str) else str(found.regard_kernels(name.encode()).decode())


def can_join() -> bool:
    """Whether sentences can join a search that is running; not with a library that an older version of Regard built."""
    return hasattr(library(), "regard_open")


class Packed:
    """A packed model, mapped into memory."""

    def __init__(self, path: Path, kernels: str = "") -> None:
        found = library()
        if isinstance(found, str):
            raise ModelError(f"the native engine is not there: {found}")
        self._library, self._handle = found, None
        self.size = path.stat().st_size if path.is_file() else 0
        error = ctypes.create_string_buffer(ERROR_SIZE)
        self._handle = found.regard_load(bytes(path), kernels.encode(), error, ERROR_SIZE)
        if not self._handle:
            raise ModelError(f"{path}: {error.value.decode()}")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.regard_unload(self._handle)

    def shorten(self, shortlist: Shortlist) -> None:
        """From now on nothing else is written than what a shortlist allows for a source."""
        if not hasattr(self._library, "regard_shorten"):
            raise ModelError("the native engine was built by an older version of Regard: install Regard again")
        self._shortlist = shortlist  # whose arrays the library reads
        arrays = (shortlist.starts, shortlist.tokens, shortlist.common)
        lists = Lists(*(numbers.buffer_info()[0] for numbers in arrays), *map(len, arrays))
        error = ctypes.create_string_buffer(ERROR_SIZE)
        if not self._library.regard_shorten(self._handle, ctypes.byref(lists), error, ERROR_SIZE):
            raise ModelError(f"the shortlist cannot be used: {error.value.decode()}")

    def search(self, request: Request, read: Callable[[Result], Any]) -> Any:
        """Runs a search and lets `read` take what was found."""
        error = ctypes.create_string_buffer(ERROR_SIZE)
        result = self._library.regard_search(self._handle, ctypes.byref(request), error, ERROR_SIZE)
        if not result:
            raise ModelError(f"the native engine stopped: {error.value.decode()}")
        try:
            return read(result.contents)
        finally:
            self._library.regard_release(result)

    def open(self, request: Request) -> Running:
        """A search with the options of a request that sentences can join."""
        return Running(self, self._library, self._handle, request)


class Running:
    """A live search of the library's; `wait` is for one thread, which is also the one to free it."""

    def __init__(self, packed: Packed, loaded: ctypes.CDLL, handle: int | None, request: Request) -> None:
        self._packed, self._library = packed, loaded  # the model must not be unloaded before
        error = ctypes.create_string_buffer(ERROR_SIZE)
        self._live = loaded.regard_open(handle, ctypes.byref(request), error, ERROR_SIZE)
        if not self._live:
            raise ModelError(f"the native engine cannot start: {error.value.decode()}")

    def submit(self, request: Request) -> int:
        """Lets the sentences of a request join: the number of the first."""
        error = ctypes.create_string_buffer(ERROR_SIZE)
        first: int = self._library.regard_submit(self._live, ctypes.byref(request), error, ERROR_SIZE)
        if first < 0:
            raise ModelError(f"the native engine refuses: {error.value.decode()}")
        return first

    def wait(self, read: Callable[[Result], Any]) -> Any:
        """Sleeps until some sentences are found, and lets `read` take them; none: the search is over."""
        error = ctypes.create_string_buffer(ERROR_SIZE)
        result = self._library.regard_wait(self._live, error, ERROR_SIZE)
        if not result:
            if error.value:
                raise ModelError(f"the native engine stopped: {error.value.decode()}")
            return None
        try:
            return read(result.contents)
        finally:
            self._library.regard_release(result)

    def cancel(self, number: int) -> bool:
        """The sentence of this number leaves, wherever it is; false if it was found already."""
        return bool(self._library.regard_cancel(self._live, number))

    def close(self) -> None:
        """Ends the search at once; `wait` ends too."""
        self._library.regard_close(self._live)

    def free(self) -> None:
        """Lets go of everything; nothing else may be called after it."""
        self._library.regard_free(self._live)
