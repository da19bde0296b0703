"""The mean of models that were trained from one: mostly better than each, and no larger (Wortsman et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.folder import MEMORY, SHORTLIST, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.interop.quantized import write_copy
from regard.weights import read_tensors

NEAR = 0.3
"""Cosine of the weights of two models, at least: trained from one they have 0.6 after many updates, else about 0."""


def average_folders(folders: Sequence[Path | str], output: Path | str, *, overwrite: bool = False) -> float:
    """Writes a model whose weights are the mean; returns the lowest cosine of two of them."""
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise InputError("the mean is of two models or more: name them all")
    for path in paths:
        check_folder(path)
        refuse_another(paths[0], path)
    models = [read_tensors(path / WEIGHTS)[0] for path in paths]
    for path, model in zip(paths, models, strict=True):
        if {name: tensor.shape for name, tensor in model.items()} != {n: t.shape for n, t in models[0].items()}:
            raise ModelError(f"{path / WEIGHTS}: has other tensors than {paths[0] / WEIGHTS}")
        for name, tensor in model.items():
            if not tensor.isfinite().all():
                raise ModelError(f"{path / WEIGHTS}: the tensor {name} has numbers that are not finite")
    nearest = [(cosine(models[0], model), path) for path, model in zip(paths[1:], models[1:], strict=True)]
    least, farthest = min(nearest)
    if least < NEAR:
        raise InputError(
            f"{farthest}: its weights have nothing in common with those of {paths[0]} (cosine {least:.2f}), so their "
            "mean says nothing: average models that were trained from one, with regard train --from"
        )
    mean = {name: torch.stack([model[name].double() for model in models]).mean(0).float().numpy() for name in models[0]}
    others = ", ".join(path.resolve().name for path in paths[1:])
    note = f"\nThe weights are the mean of these and of {others} (`regard average`); the scores are of these alone.\n"
    write_copy(paths[0], Path(output), mean, (TOKENIZER, SHORTLIST, MEMORY), note, overwrite=overwrite)
    return least


def refuse_another(first: Path, other: Path) -> None:
    """Refuses a model of another task, shape, vocabulary or set of languages."""
    kinds = [
        {
            "purpose": (settings.task, settings.data.source, settings.data.target, settings.data.directions),
            "shape": {name: value for name, value in asdict(settings.model).items() if "dropout" not in name},
            "vocabulary": (path / TOKENIZER).read_bytes(),
        }
        for path, settings in ((path, read_settings(path)) for path in (first, other))
    ]
    for name, value in kinds[0].items():
        if kinds[1][name] != value:
            raise InputError(f"{other}: has another {name} than {first}, so their weights have no mean")


def cosine(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Of all matrices; gains, which begin as ones, would make any two alike."""
    pairs = [(ours[name].double().flatten(), theirs[name].double().flatten()) for name in ours if ours[name].dim() == 2]
    product = sum(float(a @ b) for a, b in pairs)
    length = sum(float(a @ a) for a, _ in pairs) * sum(float(b @ b) for _, b in pairs)
    return product / length**0.5 if length else 0.0
