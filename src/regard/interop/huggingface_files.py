"""The files of a Hugging Face folder: JSON, and tensors in one file or several."""

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
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"


def read_json(path: Path) -> dict[str, Any]:
    """Reads the object in a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: damaged: not JSON") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: damaged: not a JSON object")
    return content


def read_json_if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Returns the file of the weights, or their index, and the tensors."""
    for name in (SAFE, PICKLED):
        path, index = folder / name, folder / f"{name}.index.json"
        if path.is_file():
            return path, read_file(path)
        if index.is_file():
            return index, read_shards(index)
    raise ModelError(f"{folder}: has no weights: neither {SAFE} nor {PICKLED}")


def read_shards(index: Path) -> dict[str, Tensor]:
    """Reads the tensors of all files that an index lists."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError(f"{index}: damaged: it does not say in which file each tensor is")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise ModelError(f"{index}: names the file {name}, which is not in this folder")
        tensors.update(read_file(index.with_name(name)))
    missing = sorted(places.keys() - tensors.keys())
    if missing:
        raise ModelError(f"{index}: lists the tensor {missing[0]}, which {places[missing[0]]} does not have")
    return tensors


def read_file(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of one file."""
    return read_tensors(path)[0] if path.suffix == ".safetensors" else read_pickled(path)


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Reads tensors that PyTorch pickled; a pickle that would build anything else is refused, not run."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"  # what was pickled before PyTorch 1.6 cannot be mapped into memory
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError:
        told = "refused, since it holds more than tensors and could run code, or is damaged"
        raise ModelError(f"{path}: {told}: convert it to {SAFE}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (RuntimeError, ValueError, EOFError, KeyError, AttributeError, TypeError, IndexError):
        raise ModelError(f"{path}: damaged: not a file of PyTorch tensors") from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: holds no plain table of tensors")
    return {str(name): tensor for name, tensor in content.items()}
