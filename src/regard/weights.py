"""The model in a folder as tensors: read, built, and written so that no kill can spoil it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.atomic_files import write_atomically
from regard.errors import InputError, ModelError
from regard.model.recurrent import Recurrent
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.model_folder import SCALE, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.settings import Settings
from regard.tokens.tokenizer import Vocabularies

Transformer = EncoderDecoder | Decoder | Encoder
Model = Transformer | Recurrent


@dataclass(frozen=True)
class Contents:
    """What a model folder holds, read."""

    settings: Settings
    vocabularies: Vocabularies
    model: Model


def choose_device(name: str) -> torch.device:
    """`auto` is the first of CUDA, MPS and CPU that is there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError):  # ImportError: the device of a library that is not installed
        raise InputError(f"the device {name} is not there: use auto, cpu, cuda or mps") from None
    return device


def read_folder(path: Path | str, device: torch.device | str = "cpu") -> Contents:
    """The model in a folder, ready to use."""
    path = Path(path)
    check_folder(path)
    settings = read_settings(path)
    vocabularies = Vocabularies.load(path / TOKENIZER)
    model = build_model(settings, vocabularies)
    tensors, _ = read_tensors(path / WEIGHTS)
    assign(model, tensors, path / WEIGHTS)
    return Contents(settings, vocabularies, model.to(device).eval())


def build_model(settings: Settings, vocabularies: Vocabularies) -> Model:
    """A model of this shape, for this task, with random weights."""
    shape, size = settings.model, vocabularies.target.size
    match settings.task:
        case "translate":
            return (Recurrent if shape.recurrent else EncoderDecoder)(shape, vocabularies.source.size, size)
        case "write":
            return Decoder(shape, size)
        case "fill":
            return Encoder(shape, size, fills=True)
        case "classify":
            return Encoder(shape, size, labels=len(settings.data.labels))
        case "embed":
            return Encoder(shape, size)


def summary(model: nn.Module) -> str:
    """Says in a line where a model is and how large, for the repr of what is made of it."""
    first, count = next(model.parameters()), sum(each.numel() for each in model.parameters())
    return f"PyTorch on {first.device}, {str(first.dtype).removeprefix('torch.')}, {count:,} parameters"


def transformer_of(contents: Contents, who: str) -> Transformer:
    """The model, if it is a Transformer; `who` is what takes no other."""
    if isinstance(contents.model, Recurrent):
        raise InputError(
            f"{who} takes a Transformer, and this model is not one (model.kind = {contents.settings.model.kind})"
        )
    return contents.model


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name; a table that is used in two places is there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def assign(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Puts the tensors of a file into the model, refusing a missing, unexpected or misshapen one by name."""
    wanted = parameters(model)
    for name in (*wanted, *tensors):
        if name not in tensors:
            raise ModelError(f"{path}: the tensor {name} is missing")
        if name not in wanted:
            raise ModelError(f"{path}: has the tensor {name}, which this model does not have")
        if wanted[name].shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
            raise ModelError(f"{path}: the tensor {name} has the shape {shapes}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return _dequantized(tensors), file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: damaged or unreadable ({error})") from None


def _dequantized(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices that `regard quantize` has written, as the numbers they stand for."""
    scales = {name: tensors.pop(name + SCALE) for name in list(tensors) if name + SCALE in tensors}
    return {name: t.float() * scales[name][:, None] if name in scales else t for name, t in tensors.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, dict(metadata or {})))
