"""Converts the names and layout of weights from other programs to Regard, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.interop.model_families import Family


def import_weights(family: Family, tensors: Mapping[str, Tensor], model: nn.Module, path: Path) -> dict[str, Tensor]:
    """Converts tensors to the parameters of a model; raises an error for missing, unexpected or misshapen tensors."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    first: dict[int, str] = {}  # the first name of each parameter, since a shared table has several
    owners = {name: first.setdefault(id(parameter), name) for name, parameter in parameters.items()}
    weights: dict[str, Tensor] = {}
    foreign: dict[str, str] = {}
    unused = set(tensors)
    for name in family.of_layers(parameters):
        for own in name.own:
            foreign.setdefault(owners[own], name.foreign)
        if name.foreign not in tensors:
            continue
        unused.discard(name.foreign)
        tensor, shape = tensors[name.foreign], name.conversion.write([parameters[own] for own in name.own]).shape
        if tensor.shape != shape:
            shapes = f"{tuple(tensor.shape)} instead of {tuple(shape)}"
            raise ModelError(f"{path}: the tensor {name.foreign} has the shape {shapes}")
        for own, part in zip(name.own, name.conversion.read(tensor), strict=True):
            owner = owners[own]
            if owner in weights and not torch.equal(weights[owner], part):
                copies = f"the tensor {name.foreign} must be equal to {foreign[owner]}, but is not"
                raise ModelError(f"{path}: {copies}")
            weights.setdefault(owner, part)
    if unused:
        raise ModelError(f"{path}: contains the tensor {min(unused)}, which this type of model does not have")
    for owner in first.values():
        if owner not in weights:
            raise ModelError(f"{path}: the tensor {foreign.get(owner, owner)} is missing")
        if not bool(weights[owner].isfinite().all()):
            raise ModelError(f"{path}: the tensor {foreign[owner]} contains values that are not finite")
    return {owner: weights[owner].float() for owner in first.values()}


def export_weights(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Converts the parameters of a model to tensors with foreign names."""
    weights: dict[str, Tensor] = {}
    remaining = set(tensors)
    for name in family.of_layers(tensors):
        if remaining.issuperset(name.own):
            converted = name.conversion.write([tensors[own] for own in name.own])
            weights[family.with_prefix(name.foreign)] = converted.contiguous()
            remaining.difference_update(name.own)
    assert not remaining, f"no foreign name for {sorted(remaining)}"
    return weights


def halve_sinusoids(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Converts weights for interleaved sines and cosines in positions to weights for sines first, then cosines.

    The residual stream has no preferred order: if all weights that write to it or read from it are reordered in the
    same way, its states are reordered and all outputs stay the same.
    """
    reordered = {}
    for name, tensor in tensors.items():
        module, kind = name.rsplit(".", 2)[-2:]
        writes = module in ("output", "fall", "norm")
        assert writes or module in ("query", "key", "value", "rise", "gate", "tokens", "logits"), name
        if not writes and kind == "bias":
            reordered[name] = tensor
            continue
        axis = 0 if writes else 1
        width = tensor.shape[axis]
        order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
        reordered[name] = tensor.index_select(axis, order)
    return reordered
