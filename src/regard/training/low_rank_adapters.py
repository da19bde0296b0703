"""Low-rank adapters: the weights stay, and what is learnt is a small change to each (LoRA; Hu et al., 2021)."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.model.layers import Layer


class Adapter(nn.Module):
    """Adds up · down to a weight [out, in]; it begins as nothing."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        out, inputs = weight.shape
        self.down = nn.Parameter(torch.randn(rank, inputs, device=weight.device) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(out, rank, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


def adapt(model: nn.Module, rank: int, new: Collection[str]) -> None:
    """Freezes the model but for the parameters named in `new`, and adds adapters to the linear maps of its layers."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in new)
    for linear in _linear_maps(model):
        parametrize.register_parametrization(linear, "weight", Adapter(linear.weight, rank))


def merge(model: nn.Module) -> None:
    """Adds what the adapters have learnt to the weights, and takes the adapters off."""
    for linear in _linear_maps(model):
        if parametrize.is_parametrized(linear, "weight"):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name as they are when the adapters are merged."""
    found = {}
    for name, parameter in model.named_parameters():
        if ".parametrizations." not in name:
            found[name] = parameter.detach()
        elif name.endswith(".original"):
            linear = model.get_submodule(name.partition(".parametrizations.")[0])
            assert isinstance(linear, nn.Linear)
            found[name.replace(".parametrizations.weight.original", ".weight")] = linear.weight.detach()
    return found


def _linear_maps(model: nn.Module) -> list[nn.Linear]:
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    return [module for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]
