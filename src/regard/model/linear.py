"""Linear maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.model.kernels.bfloat16 import bfloat16_linear
from regard.model.kernels.compute_mode import mode


class Linear(nn.Linear):
    """x Wᵀ + b."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., A] -> [..., B]"""
        if mode().bfloat16 and x.device.type == "cpu" and x.dtype == torch.float32:
            return bfloat16_linear(x, self.weight, self.bias)
        return super().forward(x)
