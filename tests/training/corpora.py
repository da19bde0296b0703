"""Corpora small enough to train on in a test."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "tokenizer.vocabulary": 300,
    "model.width": 32,
    "model.heads": 2,
    "model.hidden": 64,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.max_length": 32,
    "training.batch_tokens": 256,
    "training.steps": 24,
    "training.evaluate_every": 8,
    "training.evaluate_pairs": 4,
    "training.warmup": 10,
    "training.average": 2,
    "training.threads": 1,
    "training.optimizer": "adam",
    "training.precision": "float32",
}
"""Settings under which a run takes a second, and can be compared with another to rounding."""


def write_reversals(folder: Path, pairs: int, seed: int = 0, longest: int = 8) -> list[Path]:
    """Writes two files: rows of digits, and the same rows reversed."""
    dice = random.Random(seed)
    rows = [[dice.choice("0123456789") for _ in range(dice.randint(1, longest))] for _ in range(pairs)]
    source, target = folder / "train.forth", folder / "train.back"
    source.write_text("".join(" ".join(row) + "\n" for row in rows))
    target.write_text("".join(" ".join(reversed(row)) + "\n" for row in rows))
    return [source, target]
