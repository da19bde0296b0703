"""Reads the files of other programs: bytes, text, JSON, and tensors in one file or several."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.weights import read_tensors

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"


def read_bytes(path: Path) -> bytes:
    """Reads a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def read_text(path: Path) -> str:
    """Reads a file of UTF-8; every line ends in a line feed."""
    try:
        return read_bytes(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except ValueError:
        raise ModelError(f"{path}: damaged: not UTF-8") from None


def read_json(path: Path, kind: type = dict) -> Any:
    """Reads the object in a JSON file, or the list if `kind` says so."""
    try:
        content = json.loads(read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: damaged: not JSON") from None
    if not isinstance(content, kind):
        raise ModelError(f"{path}: damaged: not a JSON {'object' if kind is dict else 'list'}")
    return content


def read_json_if_present(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path) if path.is_file() else {}
    return content


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Returns the file of the weights, or their index, and the tensors."""
    for name in (SAFE, PICKLED):
        path, index = folder / name, folder / f"{name}.index.json"
        if path.is_file():
            return path, _read_file(path)
        if index.is_file():
            return index, _read_shards(index)
    raise ModelError(f"{folder}: has no weights: neither {SAFE} nor {PICKLED}")


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Reads the tensors of all files that an index lists."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{index}: damaged: it does not say in which file each tensor is")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(files.values())):
        if Path(name).name != name:
            raise ModelError(f"{index}: names the file {name}, which is not in this folder")
        tensors.update(_read_file(index.with_name(name)))
    missing = sorted(files.keys() - tensors.keys())
    if missing:
        raise ModelError(f"{index}: lists the tensor {missing[0]}, which {files[missing[0]]} does not have")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0] if path.suffix == ".safetensors" else _read_pickled(path)


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """Reads tensors that PyTorch pickled; a pickle that would build anything else is refused, not run."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"  # what was pickled before PyTorch 1.6 cannot be mapped into memory
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError:
        reason = "refused, since it holds more than tensors and could run code, or is damaged"
        raise ModelError(f"{path}: {reason}: convert it to {SAFE}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (RuntimeError, ValueError, EOFError, KeyError, AttributeError, TypeError, IndexError):
        raise ModelError(f"{path}: damaged: not a file of PyTorch tensors") from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: holds no plain table of tensors")
    return {str(name): tensor for name, tensor in content.items()}
