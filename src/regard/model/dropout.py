"""Dropout."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.kernels import fused
from regard.model.kernels.compute_mode import fused_kernels, mode
from regard.model.kernels.dropout_masks import mask_tensor


class Dropout(nn.Module):
    """Sets a share of the elements to 0 and scales the rest up, so that the mean stays (Srivastava et al., 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, y: Tensor, onto: Tensor | None = None) -> Tensor:
        """Returns y, with dropout while training, added to `onto` if it is given."""
        if self.training:
            return drop(y, current_rate(self.rate), onto)
        return y if onto is None else onto + y


def current_rate(rate: float) -> float:
    """Returns the part of a dropout rate that applies now, while dropout grows."""
    masks = mode().masks
    return rate if masks is None else rate * masks.strength


def drop(y: Tensor, rate: float, onto: Tensor | None = None) -> Tensor:
    """Drops this share of y's elements and scales the others up; adds the result to `onto` if it is given."""
    masks = mode().masks
    if masks is None or y.device.type != "cpu" or not 0 < rate < 1:
        dropped = F.dropout(y, rate)
    else:
        mask = masks.next(y.numel(), rate)
        if kernels := fused_kernels(y, y if onto is None else onto):
            return fused.drop(kernels, onto, y, mask)
        dropped = y * mask_tensor(mask, y)
    return dropped if onto is None else onto + dropped
