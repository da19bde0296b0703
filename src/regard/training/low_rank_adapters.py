"""Low-rank adapters, which learn a small change to each frozen weight (LoRA; Hu et al., 2021)."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.model.layers import Layer


class Adapter(nn.Module):
    """Adds the product up · down, which is initially zero, to a weight [out, in]."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        out, inputs = weight.shape
        self.down = nn.Parameter(torch.randn(rank, inputs, device=weight.device) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(out, rank, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


def add_adapters(model: nn.Module, rank: int, new: Collection[str]) -> None:
    """Freezes all parameters except those in `new`, and adds adapters to the linear layers."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in new)
    for linear in _linear_layers(model):
        parametrize.register_parametrization(linear, "weight", Adapter(linear.weight, rank))


def merge_adapters(model: nn.Module) -> None:
    """Adds the learned changes to the weights, and removes the adapters."""
    for linear in _linear_layers(model):
        if parametrize.is_parametrized(linear, "weight"):
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)


def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the weights by name, with adapters merged; the model does not change."""
    weights = {}
    for name, parameter in model.named_parameters():
        if ".parametrizations." not in name:
            weights[name] = parameter.detach()
        elif name.endswith(".original"):
            linear = model.get_submodule(name.partition(".parametrizations.")[0])
            assert isinstance(linear, nn.Linear)
            weights[name.replace(".parametrizations.weight.original", ".weight")] = linear.weight.detach()
    return weights


def _linear_layers(model: nn.Module) -> list[nn.Linear]:
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    return [module for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]
