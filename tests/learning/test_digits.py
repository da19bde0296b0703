"""The model learns what a Transformer must: to copy, and to reverse."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import regard
from regard.training.trainer import train

SETTINGS = {
    "tokenizer.vocabulary": 300,
    "model.width": 64,
    "model.heads": 4,
    "model.hidden": 128,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "model.max_length": 32,
    "model.norm": "pre",
    "training.batch_tokens": 1024,
    "training.steps": 900,
    "training.learning_rate": 3e-3,
    "training.warmup": 100,
    "training.schedule": "linear",
    "training.label_smoothing": 0.0,
    "training.evaluate_every": 900,
    "training.evaluate_pairs": 10,
    "training.threads": 2,
}


def rows(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choice("0123456789") for _ in range(dice.randint(3, 10))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_digits(task: str, tmp_path: Path) -> None:
    def answer(row: str) -> str:
        return row if task == "copy" else row[::-1]

    corpus = tmp_path / "digits.tsv"
    corpus.write_text("".join(f"{row}\t{answer(row)}\n" for row in rows(8000, 0)))
    for _ in train([corpus], tmp_path / "run", overrides=SETTINGS):
        pass
    unseen = rows(500, 1)
    found = regard.load(tmp_path / "run").translate(unseen, beam=1)
    right = sum(t.text == answer(row) for t, row in zip(found, unseen, strict=True))
    assert right > 0.99 * len(unseen), f"{right} of {len(unseen)}"
