"""Reads the files of other programs: bytes, text, JSON, and tensors in one or several files."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import untrusted_files
from regard.errors import ModelError
from regard.untrusted_files import parse_json
from regard.weights import read_tensors

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
LARGEST = 64_000_000
"""Maximum size in bytes of a file that is read as a whole; vocabularies have up to 40 MB."""
LARGEST_CONFIG = 4_000_000
MOST_VALUES = 4_000_000
"""Maximum number of values in a JSON file or lines in a text; a tokenizer has up to a million pieces and merges."""
LARGEST_HEADER = 16_000_000
"""Maximum size in bytes of the header of a safetensors file, which contains names and shapes."""


def require_regular(path: Path, most: int | None = None) -> None:
    """Raises an error for devices, pipes, links to other folders, and files with more than `most` bytes.

    In the cache of Hugging Face, links to the folder `blobs` of the same model are allowed.
    """
    snapshot = next((each for each in path.absolute().parents if each.parent.name == "snapshots"), None)
    blobs = None if snapshot is None else snapshot.parents[1] / "blobs"
    in_blobs = blobs is not None and Path(os.path.realpath(path)).is_relative_to(blobs.resolve())
    untrusted_files.require_regular(path, blobs if in_blobs else path.parent, most)


def read_bytes(path: Path, most: int | None = LARGEST) -> bytes:
    """Reads a regular file of at most `most` bytes."""
    require_regular(path, most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def read_text(path: Path) -> str:
    """Reads a UTF-8 file, and converts all line ends to line feeds."""
    try:
        text = read_bytes(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except ValueError:
        raise ModelError(f"{path}: damaged: not UTF-8") from None
    _check_count(path, text.count("\n"), "lines")
    return text


def _check_count(path: Path, count: int, of: str) -> None:
    if count > MOST_VALUES:
        raise ModelError(f"{path}: has {count:,} {of}; such files have at most {MOST_VALUES:,}")


def read_json(path: Path, kind: type = dict, largest: int = LARGEST_CONFIG) -> Any:
    """Reads a JSON file that contains an object or, if `kind` is `list`, a list."""
    content = read_bytes(path, largest)
    _check_count(path, sum(content.count(mark) for mark in (b",", b"[", b"{")), "values")
    try:
        parsed = parse_json(content)
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: damaged: not JSON") from None
    if not isinstance(parsed, kind):
        raise ModelError(f"{path}: damaged: not a JSON {'object' if kind is dict else 'list'}")
    return parsed


def read_json_if_present(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path) if path.is_file() else {}
    return content


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Reads all tensors of a folder; also returns the path of the weights file or of its index."""
    for name in (SAFE, PICKLED):
        path, index = folder / name, folder / f"{name}.index.json"
        if path.is_file():
            return path, _read_file(path)
        if index.is_file():
            return index, _read_shards(index)
    raise ModelError(f"{folder}: there are no weights: neither {SAFE} nor {PICKLED} exists")


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Reads the tensors of all files listed in an index."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{index}: damaged: it does not list the file of each tensor")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(files.values())):
        if Path(name).name != name:
            raise ModelError(f"{index}: lists the file {name}, which is not in this folder")
        tensors.update(_read_file(index.with_name(name)))
    missing = sorted(files.keys() - tensors.keys())
    if missing:
        raise ModelError(f"{index}: lists the tensor {missing[0]}, which {files[missing[0]]} does not have")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    require_regular(path)
    if path.suffix != ".safetensors":
        return _read_pickled(path)
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= LARGEST_HEADER:
        raise ModelError(f"{path}: damaged or unreadable (a header of {size:,} bytes)")
    try:
        return read_tensors(path)[0]
    except MemoryError:
        raise ModelError(f"{path}: does not fit into memory") from None


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """Reads tensors pickled by PyTorch; raises an error, and runs no code, if a pickle contains anything else."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"  # the format before PyTorch 1.6 cannot be memory-mapped
        if zipped:
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise ModelError(f"{path}: damaged: PyTorch does not compress its files")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError:
        reason = "the file contains more than tensors and could run code, or is damaged"
        raise ModelError(f"{path}: {reason}: convert it to {SAFE}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (
        *(RuntimeError, ValueError, EOFError, LookupError, AttributeError, TypeError, MemoryError),
        zipfile.BadZipFile,
    ):
        raise ModelError(f"{path}: damaged: not a file of PyTorch tensors") from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: does not contain a plain dictionary of tensors")
    for name, tensor in content.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_complex():
            raise ModelError(f"{path}: the tensor {name} is not a plain array of numbers")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ModelError(f"{path}: the tensor {name} is larger than its data")
    return {str(name): tensor for name, tensor in content.items()}
