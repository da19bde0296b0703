"""A model folder: all that is needed to go from text to text, written so that no kill can spoil it.

model.toml            settings and languages
weights.safetensors   parameters, by name
tokenizer.json        one vocabulary, or two
card.md               for people: data, scores, date, version
log.jsonl             the course of training, a line an event
history/              weights kept along the way, if training.history asks for them
training/             what --resume needs; safe to delete when training is over
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.errors import InputError, ModelError, RegardError
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import Settings, recorded
from regard.text.tokenizer import Vocabularies

SETTINGS, WEIGHTS, TOKENIZER, CARD, LOG, HISTORY, TRAINING = (
    "model.toml",
    "weights.safetensors",
    "tokenizer.json",
    "card.md",
    "log.jsonl",
    "history",
    "training",
)


Model = EncoderDecoder | Decoder | Encoder


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


def read_folder(path: Path, device: torch.device | str = "cpu") -> Contents:
    """The model in a folder, ready to use."""
    if not path.is_dir():
        raise ModelError(f"{path}: no such folder")
    if not (path / SETTINGS).is_file():
        raise ModelError(f"{path}: not a Regard model (it has no {SETTINGS})")
    if not (path / WEIGHTS).is_file():
        raise ModelError(
            f"{path}: has no {WEIGHTS} yet: is it still training, or go on with regard train --resume {path}"
        )
    settings = read_settings(path)
    vocabularies = Vocabularies.load(path / TOKENIZER)
    model = build_model(settings, vocabularies)
    tensors, _ = read_tensors(path / WEIGHTS)
    assign(model, tensors, path / WEIGHTS)
    return Contents(settings, vocabularies, model.to(device).eval())


def read_settings(path: Path) -> Settings:
    """The settings that a model folder records."""
    try:
        return recorded(path / SETTINGS)
    except RegardError as error:
        raise ModelError(f"{path}: damaged, or written by another version of Regard: {error}") from None


def build_model(settings: Settings, vocabularies: Vocabularies) -> Model:
    """A model of this shape, for this task, with random weights."""
    shape, size = settings.model, vocabularies.target.size
    match settings.task:
        case "translate":
            return EncoderDecoder(shape, vocabularies.source.size, size)
        case "write":
            return Decoder(shape, size)
        case "fill":
            return Encoder(shape, size, fills=True)
        case "classify":
            return Encoder(shape, size, labels=len(settings.data.labels))
        case "embed":
            return Encoder(shape, size)


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
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: damaged or unreadable ({error})") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, dict(metadata or {})))


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode("utf-8")))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a new file beside `path`, which takes its place when it is whole and on the disk."""
    special = path.exists() and not path.is_file() and not path.is_dir()  # a pipe or a device is written to as it is
    temporary = path if special else path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        if not special:
            temporary.chmod(0o666 & ~_umask())  # safetensors makes files that nobody else may read
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException as error:
        if not special:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            told = f"{path}: cannot be written ({reason(error)}); what was there before is unchanged"
            raise ModelError(told) from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(path: Path) -> None:
    """Makes a rename in this folder survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reason(error: Exception) -> str:
    """The cause of a failed write in plain words."""
    if isinstance(error, OSError) and error.errno is not None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "the disk is full: free some space and try again" if full else os.strerror(error.errno)
    text = str(error)
    return (
        "the disk is full: free some space and try again" if "No space left" in text or "os error 28" in text else text
    )
