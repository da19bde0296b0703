"""The compiled library, called through ctypes: from any number of threads, and Python's lock is not held meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import ModelError

HERE = Path(__file__).parent
MAGIC = b"regard-1"
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
    return loaded


def missing() -> str | None:
    """Why the native engine cannot be used here; none if it can."""
    found = library()
    return found if isinstance(found, str) else None


def instructions(name: str = "") -> str:
    """The set of instructions that the engine uses here, or, by name, whether this machine has it; "" if not."""
    found = library()
    return "" if isinstance(found, str) else str(found.regard_kernels(name.encode()).decode())


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
