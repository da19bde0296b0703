"""Muon: a matrix moves in all its directions alike (Jordan et al., 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from regard.training.distributed import Group

MOMENTUM = 0.95
SIZE = 0.2
"""Root mean square of an update at rate 1, about that of Adam's, so that one rate suits both (Liu et al., 2025)."""


class Muon(torch.optim.AdamW):
    """Muon for `matrices`, AdamW for the rest, at `times` the rate.

    A gradient is mostly a few strong directions. Muon takes the orthogonal matrix that is nearest to the momentum in
    its place: the weak directions, which rare examples ask for, count as much as the strong. Of several processes,
    which have the same gradients, each does so for some of the matrices.
    """

    def __init__(
        self,
        matrices: Sequence[Parameter],
        rest: list[dict[str, Any]],
        *,
        group: Group,
        times: float = 1.0,
        rounds: bool = False,
        **adam: Any,
    ) -> None:
        super().__init__([{**each, "times": times} for each in rest], **adam)
        self.products = torch.bfloat16 if rounds else torch.float32
        self.group = group
        self.add_param_group({"params": list(matrices)})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        group = self.param_groups[-1]
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                alike[parameter.shape].append(parameter)
        for shape, parameters in alike.items():  # one batch of products for all matrices of a shape
            momenta = torch.stack(self._momenta(parameters))
            directions = self.group.share_out(partial(orthogonalize, dtype=self.products), momenta)
            length = group["lr"] * SIZE * max(shape) ** 0.5
            if group["weight_decay"]:
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_sub_(parameters, list(directions.unbind()), alpha=length)
            for parameter in parameters:
                parameter.grad = None  # done: Adam leaves it alone
        super().step()

    def _momenta(self, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The running means of the gradients, one step ahead (Nesterov)."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if "exp_avg" not in self.state[parameter]:
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
        return torch._foreach_lerp(gradients, means, MOMENTUM)


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """[N, A, B] -> [N, A, B], with singular values between about 0.7 and 1.2 in place of their own.

    Five steps of an odd polynomial that lifts small singular values quickly (Jordan et al., 2024); its products may be
    of any `dtype`.
    """
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-12)
    wide = x.shape[-2] <= x.shape[-1]
    x = (x if wide else x.mT).to(dtype)
    for _ in range(5):
        square = x @ x.mT
        factor = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        factor.diagonal(dim1=-2, dim2=-1).add_(3.4445)
        x = factor @ x
    return (x if wide else x.mT).to(matrices.dtype)
