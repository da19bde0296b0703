"""Position encodings, without which attention would treat a sentence as a bag of words."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.settings import ModelSettings


def build_positions(settings: ModelSettings) -> nn.Module | None:
    """Returns the module that adds positions to the token embeddings; None for rotary positions or no positions."""
    if settings.positions == "learned":
        return LearnedPositions(settings)
    return SinusoidalPositions(settings) if settings.positions.startswith("sinusoidal") else None


class SinusoidalPositions(nn.Module):
    """Sines and cosines of geometrically spaced wavelengths (Vaswani et al., 2017, section 3.5)."""

    table: Tensor

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.halves = settings.positions == "sinusoidal-halves"
        self.register_buffer("table", torch.empty(0, settings.width), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Positions start ... start + length - 1 -> [T, D]; extends the table if it is too short."""
        if start + length > len(self.table):
            longer = sinusoids(2 * (start + length), self.table.shape[1], self.halves)
            self.table = longer.to(self.table)
        return self.table[start : start + length]


class LearnedPositions(nn.Module):
    """A learned vector for each position (BERT, GPT-2)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(settings.max_length, settings.width))

    def forward(self, start: int, length: int) -> Tensor:
        """Positions start ... start + length - 1 -> [T, D]; raises InputError past the end of the table."""
        if start + length > len(self.table):
            raise InputError(
                f"a sequence of {start + length} tokens is longer than this model's limit of {len(self.table)} "
                "(model.max_length): shorten or split it"
            )
        return self.table[start : start + length]


class RotaryPositions(nn.Module):
    """Rotates pairs of elements of queries and keys by an angle proportional to the position (Su et al., 2021).

    Element i is paired with element i + K / 2; q·k then depends only on the distance between the positions.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.base, self.width = settings.rotary_base, settings.head_width

    def forward(self, x: Tensor, start: int) -> Tensor:
        """[B, H, T, K] -> [B, H, T, K]; the first position is `start`."""
        cos, sin = self.angles(start, x.shape[2], x)
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def angles(self, start: int, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Positions start ... start + length - 1 -> cosines [T, K / 2] and sines [T, K / 2] of their angles."""
        speeds = self.base ** (-torch.arange(0, self.width, 2, device=like.device).float() / self.width)
        angles = torch.arange(start, start + length, device=like.device)[:, None] * speeds
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def sinusoids(length: int, width: int, halves: bool = False) -> Tensor:
    """Positions p -> [T, D]: [p, 2i] = sin(p / 10000^(2i/D)), [p, 2i+1] = cos(the same); or first all sines."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = torch.arange(length, dtype=torch.float64)[:, None] / 10_000**exponents  # [T, D / 2]
    waves = torch.cat([angles.sin(), angles.cos()], -1) if halves else torch.stack([angles.sin(), angles.cos()], -1)
    return waves.reshape(length, width).float()
