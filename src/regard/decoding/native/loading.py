"""From a model folder to the native engine: the weights are packed once, and the file is kept beside them."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from regard.decoding.native.library import Packed, missing
from regard.decoding.native.packing import MAGIC, pack
from regard.errors import ModelError
from regard.folder import NATIVE, WEIGHTS, write_atomically
from regard.int8 import SCALE
from regard.settings import Settings


def unfit(settings: Settings) -> str | None:
    """Why the native engine cannot be used for this model here; none if it can."""
    if settings.task not in ("translate", "write"):
        return f"it has no models to {settings.task}"
    return "it has no segments" if settings.model.segments else missing()


def open_packed(folder: Path, settings: Settings, precision: str, kernels: str = "") -> Packed:
    """The model of a folder for the native engine, in float32 or int8."""
    path = packed_path(folder, settings, precision)
    if path.is_file():
        with contextlib.suppress(ModelError):  # damaged: is made anew
            return Packed(path, kernels)
    try:
        write_atomically(path, lambda file: _pack(folder, settings, precision, file))
    except ModelError:  # a folder that nobody may write to: the file lives as long as it is mapped
        with tempfile.TemporaryDirectory() as place:
            _pack(folder, settings, precision, Path(place) / path.name)
            return Packed(Path(place) / path.name, kernels)
    for old in path.parent.glob(f"{precision}-*"):
        if old != path:
            old.unlink(missing_ok=True)
    return Packed(path, kernels)


def packed_path(folder: Path, settings: Settings, precision: str) -> Path:
    """Where the packed weights are; other weights, or another version of the form, have another name."""
    status = (folder / WEIGHTS).stat()
    what = (MAGIC, status.st_size, status.st_mtime_ns, settings.task, settings.model)
    return folder / NATIVE / f"{precision}-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"


def stored_precision(folder: Path) -> str:
    """int8 if `regard quantize` has made the folder, else float32."""
    with Weights(folder / WEIGHTS) as weights:
        return "int8" if any(name.endswith(SCALE) for name in weights.names) else "float32"


class Weights(Mapping[str, "NDArray[Any]"]):
    """The tensors of a safetensors file, each read when it is asked for; int8 ones as the numbers they stand for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Weights:
        try:
            self.file = safe_open(self.path, "numpy").__enter__()
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{self.path}: damaged or unreadable ({error})") from None
        self.names = set(self.file.keys())
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.names:
            raise KeyError(name)
        try:
            array: NDArray[Any] = self.file.get_tensor(name)
            if name + SCALE in self.names:
                return array.astype(np.float32) * self.file.get_tensor(name + SCALE)[:, None]
        except (SafetensorError, TypeError) as error:  # TypeError: a type that NumPy does not have
            raise ModelError(f"{self.path}: the tensor {name} is unreadable ({error})") from None
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in self.names if not name.endswith(SCALE)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _pack(folder: Path, settings: Settings, precision: str, path: Path) -> None:
    with Weights(folder / WEIGHTS) as weights, path.open("wb") as file:
        try:
            pack(weights, settings.model, file, decoder_only=settings.task == "write", int8=precision == "int8")
        except (KeyError, ValueError) as error:
            raise ModelError(f"{folder / WEIGHTS}: does not fit {folder / 'model.toml'} ({error})") from None
