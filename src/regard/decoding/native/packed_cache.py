"""Packs the weights of a model folder for the native engine, once, and keeps the file in the folder."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

from regard.atomic_files import write_atomically
from regard.decoding.native.compiled_library import MAGIC, PackedModel, missing
from regard.errors import ModelError
from regard.limited_files import read_header
from regard.model_folder import NATIVE, SCALE, TOKENIZER, WEIGHTS
from regard.settings import Settings

_PACKING = threading.Lock()  # when two threads open a new folder, the second waits for the file of the first


def reason_against(settings: Settings) -> str | None:
    """Returns the reason why the native engine cannot run a model here; None if it can."""
    if settings.task not in ("translate", "write"):
        return f"it has no models to {settings.task}"
    if settings.model.kind != "transformer":
        return f"it has no layers of {settings.model.kind.upper()}"
    return "it has no segments" if settings.model.segments else missing()


def open_packed(folder: Path, settings: Settings, precision: str, kernels: str = "") -> PackedModel:
    """Opens the model of a folder for the native engine, in float32 or int8; a damaged file is packed again."""
    kept, name = folder / NATIVE, f"{precision}-{_identify(folder, settings)}"
    with _PACKING:
        for packed in kept.glob(f"{name}-*"):
            with contextlib.suppress(ModelError, OSError):
                if is_intact(packed):
                    return PackedModel(packed, kernels)
        new = kept / f".{name}.{os.getpid()}"
        try:
            write_atomically(new, lambda file: _pack(folder, settings, precision, file))
        except ModelError:  # not writable, or the disk is full: the file is deleted once it is mapped
            from tempfile import TemporaryDirectory

            with TemporaryDirectory() as temporary:
                _pack(folder, settings, precision, Path(temporary) / name)
                return PackedModel(Path(temporary) / name, kernels)
        packed = new.replace(kept / f"{name}-{_checksum(new):08x}")
        for old in kept.glob(f"{precision}-*"):
            if old != packed:
                old.unlink(missing_ok=True)
        return PackedModel(packed, kernels)


def _identify(folder: Path, settings: Settings) -> str:
    """Returns a name for the packed weights; other weights, or another version of the format, have another one."""
    files = [(folder / name).stat() for name in (WEIGHTS, TOKENIZER) if (folder / name).is_file()]
    identity = repr((MAGIC, [(file.st_size, file.st_mtime_ns) for file in files], settings.task, settings.model))
    return f"{zlib.crc32(identity.encode()):08x}{zlib.adler32(identity.encode()):08x}"


LARGEST_SUMMED = 2**30
"""Bytes of packed weights that are compared with their checksum when they are opened."""


def is_intact(packed: Path) -> bool:
    """Reports whether a packed file has the checksum in its name."""
    return packed.stat().st_size > LARGEST_SUMMED or packed.name.endswith(f"-{_checksum(packed):08x}")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


class StoredWeights(NamedTuple):
    """The precision and the size of the weights in a folder."""

    precision: str  # int8 for folders of `regard quantize`, else float32
    parameters: int


def read_stored(folder: Path) -> StoredWeights:
    """Reads the header of the weights in a folder, without safetensors, which would import NumPy."""
    tensors = {name: math.prod(shape) for name, shape in read_header(folder / WEIGHTS, folder).items()}
    counts = [count for name, count in tensors.items() if not name.endswith(SCALE)]
    return StoredWeights("int8" if len(counts) < len(tensors) else "float32", sum(counts))


def _pack(folder: Path, settings: Settings, precision: str, path: Path) -> None:
    """Reads a model with PyTorch, which checks all tensors, and writes it packed."""
    from regard.decoding.native.weight_packing import pack
    from regard.weights import parameters, read_folder

    weights = {name: tensor.float().numpy() for name, tensor in parameters(read_folder(folder).model).items()}
    pack(weights, settings.model, path, decoder_only=settings.task == "write", int8=precision == "int8")
