"""From a model folder to the native engine: the weights are packed once, and the file is kept beside them."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

from regard.atomic_files import write_atomically
from regard.decoding.native.compiled_library import MAGIC, Packed, missing
from regard.errors import ModelError
from regard.model_folder import NATIVE, SCALE, TOKENIZER, WEIGHTS
from regard.settings import Settings

LONGEST_HEADER = 100_000_000
"""Bytes; safetensors has the same limit."""

_PACKING = threading.Lock()  # of two threads that open a new folder, the second waits for the first one's file


def unfit(settings: Settings) -> str | None:
    """Why the native engine cannot be used for this model here; none if it can."""
    if settings.task not in ("translate", "write"):
        return f"it has no models to {settings.task}"
    if settings.model.recurrent:
        return f"it has no layers of {settings.model.kind.upper()}"
    return "it has no segments" if settings.model.segments else missing()


def open_packed(folder: Path, settings: Settings, precision: str, kernels: str = "") -> Packed:
    """The model of a folder for the native engine, in float32 or int8."""
    path = packed_path(folder, settings, precision)
    with _PACKING:
        if path.is_file():
            with contextlib.suppress(ModelError):  # damaged: is made anew
                return Packed(path, kernels)
        try:
            write_atomically(path, lambda file: _pack(folder, settings, precision, file))
        except ModelError:  # the folder or its disk takes nothing more: the file lives as long as it is mapped
            from tempfile import TemporaryDirectory

            with TemporaryDirectory() as place:
                _pack(folder, settings, precision, Path(place) / path.name)
                return Packed(Path(place) / path.name, kernels)
        for old in path.parent.glob(f"{precision}-*"):
            if old != path:
                old.unlink(missing_ok=True)
        return Packed(path, kernels)


def packed_path(folder: Path, settings: Settings, precision: str) -> Path:
    """Where the packed weights are; other weights, or another version of the form, have another name."""
    files = [(folder / name).stat() for name in (WEIGHTS, TOKENIZER) if (folder / name).is_file()]
    what = (MAGIC, [(file.st_size, file.st_mtime_ns) for file in files], settings.task, settings.model)
    return folder / NATIVE / f"{precision}-{zlib.crc32(repr(what).encode()):08x}{zlib.adler32(repr(what).encode()):08x}"


class Stored(NamedTuple):
    """What the file of weights in a folder says of itself."""

    precision: str  # int8 if `regard quantize` has made the folder, else float32
    parameters: int


def read_stored(folder: Path) -> Stored:
    """Reads the names and shapes of the tensors in a folder; safetensors would import NumPy for it."""
    try:
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = dict(json.loads(file.read(min(size, LONGEST_HEADER))))
            tensors = {name: math.prod(about["shape"]) for name, about in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{folder / WEIGHTS}: damaged or unreadable ({error})") from None
    counts = [count for name, count in tensors.items() if not name.endswith(SCALE)]
    return Stored("int8" if len(counts) < len(tensors) else "float32", sum(counts))


def _pack(folder: Path, settings: Settings, precision: str, path: Path) -> None:
    """Reads the model as PyTorch does, which finds whatever is wrong with it, and writes it packed."""
    from regard.decoding.native.weight_packing import pack
    from regard.weights import parameters, read_folder

    weights = {name: tensor.float().numpy() for name, tensor in parameters(read_folder(folder).model).items()}
    with path.open("wb") as file:
        pack(weights, settings.model, file, decoder_only=settings.task == "write", int8=precision == "int8")
