"""Packs the weights of a model folder for the native engine on first use, and keeps the file in the folder."""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from regard.atomic_files import write_atomically
from regard.decoding.native.compiled_library import MAGIC, PackedModel, reason_unavailable
from regard.errors import ModelError
from regard.model_folder import NATIVE, SCALE, TOKENIZER, WEIGHTS
from regard.model_manifest import read_manifest, sha256
from regard.settings import Settings
from regard.untrusted_files import LARGEST_TOKENIZER, read_header, require_regular

LARGE = 2**30
"""Size of weights, in bytes, whose digest takes about a second to compute."""
_PACKING = threading.Lock()  # if two threads open a new folder, the second waits for the file of the first


def reason_unsupported(settings: Settings) -> str | None:
    """Returns the reason why the native engine cannot run a model here, or None if it can."""
    if settings.task not in ("translate", "write"):
        return f"it does not support the task {settings.task}"
    if settings.model.kind != "transformer":
        return f"it does not support {settings.model.kind.upper()} layers"
    return "it does not support segments" if settings.model.segments else reason_unavailable()


def open_packed(folder: Path, settings: Settings, precision: str, kernels: str = "") -> PackedModel:
    """Opens the model in a folder for the native engine, in float32 or int8."""
    path = packed_path(folder, settings, precision)

    def pack_current_weights(file: Path) -> None:
        _pack(folder, settings, precision, file)
        if packed_path(folder, settings, precision) != path:
            raise ModelError(f"{folder}: the weights were replaced while they were being packed: try again")

    with _PACKING:
        if path.is_file():
            with contextlib.suppress(ModelError):  # if the file is damaged, pack again
                return PackedModel(path, kernels)
        try:
            write_atomically(path, pack_current_weights)
        except ModelError:  # if the folder is not writable or the disk is full, pack without keeping the file
            with TemporaryDirectory() as temporary:
                _pack(folder, settings, precision, Path(temporary) / path.name)
                return PackedModel(Path(temporary) / path.name, kernels)
        for old in path.parent.glob(f"{precision}-*"):
            if old != path:
                old.unlink(missing_ok=True)
        return PackedModel(path, kernels)


def packed_path(folder: Path, settings: Settings, precision: str) -> Path:
    """Returns the path of the packed weights, whose name contains a digest of the weights, settings and format.

    The digests come from the manifest, to avoid reading the weights. Since the manifest may be outdated, the name also
    depends on file sizes and times. Packing compares the weights with the manifest.
    """
    known, files = read_manifest(folder), []
    require_regular(folder / TOKENIZER, folder, LARGEST_TOKENIZER)  # before hashing it
    for path in (folder / WEIGHTS, folder / TOKENIZER):
        if path.is_file():
            status, digests = path.stat(), known.get(path.name, [])
            if len(digests) != 1 and status.st_size > LARGE:
                from regard.weights import check_shapes

                check_shapes(folder)  # rejects foreign weights of any size before hashing them
            digest = digests[0] if len(digests) == 1 else sha256(path)
            files.append((digest, status.st_size, status.st_mtime_ns))
    identity = repr((MAGIC, files, settings.task, settings.model))
    return folder / NATIVE / f"{precision}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


class StoredWeights(NamedTuple):
    """The precision and size of the weights in a folder."""

    precision: str  # int8 for folders written by `regard quantize`, otherwise float32
    parameters: int


def read_stored(folder: Path) -> StoredWeights:
    """Reads the header of the weights in a folder without the safetensors library, which would import NumPy."""
    tensors = {name: math.prod(shape) for name, shape in read_header(folder / WEIGHTS, folder).items()}
    counts = [count for name, count in tensors.items() if not name.endswith(SCALE)]
    return StoredWeights("int8" if len(counts) < len(tensors) else "float32", sum(counts))


def _pack(folder: Path, settings: Settings, precision: str, path: Path) -> None:
    """Reads a model with PyTorch, which checks all tensors, and writes the packed file."""
    from regard.decoding.native.weight_packing import pack
    from regard.weights import parameters, read_folder

    weights = {name: tensor.float().numpy() for name, tensor in parameters(read_folder(folder).model).items()}
    pack(weights, settings.model, path, decoder_only=settings.task == "write", int8=precision == "int8")
