"""The model learns what a Transformer must: to copy, and to reverse."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import regard
from regard.preparation.train_and_resume import train
from tests.learning.test_tasks import PAPER

SETTINGS = {
    "tokenizer.vocabulary": 300,
    "model.width": 64,
    "model.heads": 4,
    "model.hidden": 128,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "model.max_length": 32,
    **PAPER,
    "training.batch_tokens": 1024,
    "training.steps": 700,
    "training.learning_rate": 3e-3,
    "training.warmup": 100,
    "training.schedule": "linear",
    "training.label_smoothing": 0.0,
    "training.evaluate_every": 700,
    "training.evaluate_pairs": 10,
    "training.threads": 1,
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
    found = regard.load_as(regard.Translator, tmp_path / "run").translate(unseen, beam=1)
    right = sum(t.text == answer(row) for t, row in zip(found, unseen, strict=True))
    assert right > 0.99 * len(unseen), f"{right} of {len(unseen)}"


EASY = {
    **SETTINGS,
    "training.batch_tokens": 512,
    "training.steps": 300,
    "training.evaluate_every": 300,
    "training.warmup": 30,
}


def letters(row: str) -> str:
    return row.translate(str.maketrans("0123456789", "abcdefghij"))


@pytest.mark.slow
def test_back_translation_and_a_student(tmp_path: Path) -> None:
    """Back-translations are right, and so are the model that is trained on them and its student."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{row}\t{letters(row)}\n" for row in rows(2000, 0)))
    (tmp_path / "text.txt").write_text("".join(f"{letters(row)}\n" for row in rows(400, 2)))
    (tmp_path / "more.txt").write_text("".join(f"{row}\n" for row in rows(2000, 3)))
    run, student = tmp_path / "run", tmp_path / "student"
    for _ in train([tmp_path / "pairs.tsv"], run, back_translate=[tmp_path / "text.txt"], overrides=EASY):
        pass
    made = [line.split("\t") for line in (run / "training" / "synthetic" / "pairs.tsv").read_text().splitlines()]
    right = sum(letters(source) == target for source, target in made)
    assert right > 0.5 * 400, f"made: {right} of 400"  # by chance, none would be
    for _ in regard.distill(run, [tmp_path / "more.txt"], student, overrides={**EASY, "model.hidden": 64}):
        pass
    unseen = rows(200, 1)
    for folder in (run, student):
        found = regard.load_as(regard.Translator, folder).translate(unseen, beam=1)
        right = sum(t.text == letters(row) for t, row in zip(found, unseen, strict=True))
        assert right > 0.5 * len(unseen), f"{folder.name}: {right} of {len(unseen)}"
