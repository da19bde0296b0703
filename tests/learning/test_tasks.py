"""The models learn what they must: a GPT a text that repeats, a BERT a pattern, a classifier a rule."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.preparation.train_and_resume import train

PAPER = {
    "model.norm": "pre",
    "model.norm_kind": "layer",
    "model.positions": "sinusoidal",
    "model.activation": "relu",
    "training.ema": 0.0,
    "training.subword_sampling": 0.0,
    "training.optimizer": "adam",
    "training.betas": (0.9, 0.98),
    "training.precision": "float32",
}
"""Where the preset for small corpora does otherwise: what must be learnt is learnt with the paper's parts, pre-norm."""

SHAPE: dict[str, Any] = {
    "tokenizer.vocabulary": 300,
    "model.width": 48,
    "model.heads": 4,
    "model.hidden": 96,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "model.max_length": 32,
    "training.batch_tokens": 1024,
    "training.warmup": 30,
    "training.learning_rate": 3e-3,
    "training.patience": 0,
    "training.threads": 1,
    "training.device": "cpu",
}


def learn(corpus: Path, folder: Path, task: str, steps: int, **changes: Any) -> Any:
    """Trains a model for a number of steps."""
    more = {name.replace("__", "."): value for name, value in changes.items()}
    overrides = {**SHAPE, "task": task, "training.steps": steps, "training.evaluate_every": steps, **more}
    for _ in train([corpus], folder, overrides=overrides):
        pass
    return regard.load(folder)


def test_a_gpt_learns_a_text_that_repeats(tmp_path: Path) -> None:
    period = "7 1 4 9 0 3 8 2 6 5 5 0"
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n".join([period] * 800))
    writer = learn(corpus, tmp_path / "run", "write", 150)
    scored = writer.score("\n".join([period] * 6))
    later = scored.token_log_probabilities[26:]  # once it can know where in the period it stands
    assert -sum(later) / len(later) < 0.02
    going_on = writer.write([period + "\n7 1"], temperature=0.0, max_tokens=60)[0].text
    assert (period + "\n7 1" + going_on).startswith("\n".join([period] * 3))


def test_a_bert_fills_a_pattern(tmp_path: Path) -> None:
    """Every digit is followed by its successor, so a gap can be filled from either side."""
    dice = random.Random(0)
    starts = [dice.randrange(10) for _ in range(3000)]
    corpus = tmp_path / "text.txt"
    corpus.write_text("".join(row(start) + "\n" for start in starts))
    filler = learn(corpus, tmp_path / "run", "fill", 400, data__documents="line")
    right = 0
    for start in range(10):
        for gap in range(8):
            words = row(start).split()
            hidden = " ".join("[MASK]" if i == gap else word for i, word in enumerate(words))
            right += filler(hidden) == row(start)
    assert right >= 79, f"{right} of 80"


def row(start: int) -> str:
    return " ".join(str((start + i) % 10) for i in range(8))


@pytest.mark.parametrize("carrier", ["text", "word"])
def test_a_classifier_learns_a_rule(carrier: str, tmp_path: Path) -> None:
    """A text is high if it has a nine in it; a digit is odd or even."""

    def texts(count: int, seed: int) -> list[list[str]]:
        dice = random.Random(seed)
        return [dice.choices("0123456789", k=dice.randint(3, 9)) for _ in range(count)]

    def high(digits: list[str]) -> str:
        return "high" if "9" in digits else "low"

    def parity(digit: str) -> str:
        return "odd" if int(digit) % 2 else "even"

    unseen = texts(500, 1)
    if carrier == "text":
        corpus = tmp_path / "rule.tsv"
        corpus.write_text("label\ttext\n" + "".join(f"{high(each)}\t{' '.join(each)}\n" for each in texts(3000, 0)))
        classifier = learn(corpus, tmp_path / "run", "classify", 300)
        found = [label.label for label in classifier.classify([" ".join(each) for each in unseen])]
        expected = [high(each) for each in unseen]
    else:
        corpus = tmp_path / "rule.conll"
        corpus.write_text("\n\n".join("\n".join(f"{d} {parity(d)}" for d in each) for each in texts(3000, 0)))
        classifier = learn(corpus, tmp_path / "run", "classify", 100, data__carrier="word")
        found = [label.label for labels in classifier.label_words(unseen) for label in labels]
        expected = [parity(digit) for each in unseen for digit in each]
    right = sum(a == b for a, b in zip(found, expected, strict=True))
    assert right > 0.99 * len(expected), f"{right} of {len(expected)}"
