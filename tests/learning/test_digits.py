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


def letters(row: str) -> str:
    return row.translate(str.maketrans("0123456789", "abcdefghij"))


def learn_letters(folder: Path) -> None:
    """Trains digits → letters into `folder`/run on few pairs and on more text in letters."""
    (folder / "pairs.tsv").write_text("".join(f"{row}\t{letters(row)}\n" for row in rows(600, 0)))
    (folder / "text.txt").write_text("".join(f"{letters(row)}\n" for row in rows(1200, 2)))
    overrides = {**SETTINGS, "training.steps": 300, "training.evaluate_every": 300, "training.warmup": 30}
    events = train([folder / "pairs.tsv"], folder / "run", back_translate=[folder / "text.txt"], overrides=overrides)
    for _ in events:
        pass


@pytest.mark.slow
def test_back_translation_and_a_student(tmp_path: Path) -> None:
    """The pairs made of text alone are right, and so is what is learnt from them, and what a student learns of that."""
    learn_letters(tmp_path)
    made = [line.split("\t") for line in (tmp_path / "run/training/synthetic/pairs.tsv").read_text().splitlines()]
    assert len(made) > 1150
    assert sum(letters(source) == target for source, target in made) > 0.95 * len(made)
    overrides = {**SETTINGS, "model.width": 32, "training.steps": 400, "training.evaluate_every": 400}
    (tmp_path / "more.txt").write_text("".join(f"{row}\n" for row in rows(1500, 3)))
    for _ in regard.distill(tmp_path / "run", [tmp_path / "more.txt"], tmp_path / "student", overrides=overrides):
        pass
    unseen = rows(200, 1)
    for name in ("run", "student"):
        found = regard.load(tmp_path / name).translate(unseen, beam=1)
        right = sum(t.text == letters(row) for t, row in zip(found, unseen, strict=True))
        assert right > 0.95 * len(unseen), f"{name}: {right} of {len(unseen)}"
