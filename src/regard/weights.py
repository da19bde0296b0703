"""Builds models, and reads and writes their weights in model folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.atomic_files import write_atomically
from regard.errors import InputError, ModelError
from regard.model.recurrent import Recurrent
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.model_folder import SCALE, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.model_manifest import SMALL, require_unchanged, write_listed
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies
from regard.untrusted_files import read_header, require_regular

Transformer = EncoderDecoder | Decoder | Encoder
Model = Transformer | Recurrent


@dataclass(frozen=True)
class Contents:
    """The contents of a model folder: settings, vocabularies and model."""

    settings: Settings
    vocabularies: Vocabularies
    model: Model


def choose_device(name: str) -> torch.device:
    """Returns the device with this name; `auto` is the first available of CUDA, MPS and CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError):  # ImportError: the device needs a library that is missing
        raise InputError(f"device {name} is not available: use auto, cpu, cuda or mps") from None
    return device


def read_folder(
    path: Path | str, device: torch.device | str = "cpu", *, compare: Sequence[str] = (*SMALL, WEIGHTS)
) -> Contents:
    """Reads a model folder; raises ModelError if one of the files `compare` differs from the manifest."""
    path = Path(path)
    check_folder(path)
    settings, vocabularies = check_shapes(path)
    with ThreadPoolExecutor(1) as pool:  # hash the files while reading them; hashing releases the GIL
        is_large = (path / WEIGHTS).stat().st_size > LARGEST_HASHED
        names = [name for name in compare if name != WEIGHTS or not is_large]
        check = pool.submit(require_unchanged, path, names)
        with _WithoutRandomNumbers():
            model = build_model(settings, vocabularies)
        tensors, _ = read_tensors(path / WEIGHTS)
        assign(model, tensors, path / WEIGHTS)
        check.result()
    return Contents(settings, vocabularies, model.to(device).eval())


def check_shapes(path: Path) -> tuple[Settings, Vocabularies]:
    """Returns the settings and vocabularies of a folder, after checking the shapes of the weights against them."""
    settings, vocabularies = read_settings(path), Vocabularies.load(path / TOKENIZER)
    require_shapes(expected_shapes(settings, vocabularies), read_header(path / WEIGHTS, path), path / WEIGHTS)
    return settings, vocabularies


LARGEST_HASHED = 2**30
"""Weights up to this many bytes are compared with the manifest on loading; `regard verify` compares larger ones."""


class _WithoutRandomNumbers(TorchFunctionMode):
    """Skips the random initialization of a model whose weights are read from a file."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def expected_shapes(settings: Settings, vocabularies: Vocabularies) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"), _WithoutRandomNumbers():
        return {name: tuple(tensor.shape) for name, tensor in parameters(build_model(settings, vocabularies)).items()}


def require_shapes(wanted: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raises ModelError, with the name of the tensor, if one is missing, unexpected or has the wrong shape."""
    scales = {name + SCALE for name in shapes}
    shapes = {name: shape for name, shape in shapes.items() if name not in scales}
    for name in (*wanted, *shapes):
        if name not in shapes:
            raise ModelError(f"{path}: the tensor {name} is missing")
        if name not in wanted:
            raise ModelError(f"{path}: the tensor {name} does not belong to this model")
        if wanted[name] != shapes[name]:
            raise ModelError(f"{path}: the tensor {name} has the shape {shapes[name]} instead of {wanted[name]}")


def build_model(settings: Settings, vocabularies: Vocabularies) -> Model:
    """Builds a model with random weights for the task and shape in the settings."""
    shape, size = settings.model, vocabularies.target.size
    match settings.task:
        case "translate":
            network = EncoderDecoder if shape.kind == "transformer" else Recurrent
            return network(shape, vocabularies.source.size, size)
        case "write":
            return Decoder(shape, size)
        case "fill":
            return Encoder(shape, size, fills=True)
        case "classify":
            return Encoder(shape, size, labels=len(settings.data.labels))
        case "embed":
            return Encoder(shape, size)


def summary(model: nn.Module) -> str:
    """Describes a model's device, number format and size in one line, for use in `__repr__`."""
    first, count = next(model.parameters()), sum(each.numel() for each in model.parameters())
    return f"PyTorch on {first.device}, {str(first.dtype).removeprefix('torch.')}, {count:,} parameters"


def transformer_of(contents: Contents, who: str) -> Transformer:
    """Returns the model if it is a Transformer; otherwise raises an error that names the caller `who`."""
    if isinstance(contents.model, Recurrent):
        raise InputError(
            f"{who} needs a Transformer, but this model is not one (model.kind = {contents.settings.model.kind})"
        )
    return contents.model


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Returns the weights by name; a shared table appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def assign(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies tensors from the file at `path` into the model, after checking their names and shapes."""
    wanted = parameters(model)
    shapes = [{name: tuple(tensor.shape) for name, tensor in each.items()} for each in (wanted, tensors)]
    require_shapes(shapes[0], shapes[1], path)
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns the tensors and the metadata of a safetensors file."""
    require_regular(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = _dequantized({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
            metadata = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: damaged or unreadable ({error})") from None
    for name, tensor in tensors.items():
        require_finite(name, tensor, path)
    return tensors, metadata


def require_finite(name: str, tensor: Tensor, path: Path) -> None:
    """Raises ModelError if a tensor contains NaN or infinity."""  # the sum is a quick check that may overflow
    if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
        raise ModelError(f"{path}: the tensor {name} contains values that are not finite (NaN or infinity)")


def _dequantized(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    scales = {name: tensors.pop(name + SCALE) for name in list(tensors) if name + SCALE in tensors}
    return {name: t.float() * scales[name][:, None] if name in scales else t for name, t in tensors.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, dict(metadata or {})))


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the weights of a model folder atomically, together with the manifest."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in plain.items():
        require_finite(name, tensor, folder / WEIGHTS)
    write_listed(folder, WEIGHTS, lambda temporary: save_file(plain, temporary))
