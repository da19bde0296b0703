"""One model of several directions follows the tag: digits into two languages, and back."""

from __future__ import annotations

import random
from pathlib import Path

import regard
from regard.preparation.train_and_resume import train
from tests.learning.test_tasks import PAPER, SHAPE

WORDS = {
    "num": "0 1 2 3 4 5 6 7 8 9".split(),  # noqa: SIM905
    "en": "zero one two three four five six seven eight nine".split(),  # noqa: SIM905
    "de": "null eins zwei drei vier fünf sechs sieben acht neun".split(),  # noqa: SIM905
}
DIRECTIONS = ("num-en", "num-de", "en-num", "de-num")


def rows(count: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(10) for _ in range(dice.randint(2, 5))] for _ in range(count)]


def spell(row: list[int], language: str) -> str:
    return " ".join(WORDS[language][digit] for digit in row)


def test_one_model_follows_the_tag(tmp_path: Path) -> None:
    files = [tmp_path / f"train.{language}" for language in WORDS]
    for path, language in zip(files, WORDS, strict=True):
        path.write_text("".join(spell(row, language) + "\n" for row in rows(2000, 0)), encoding="utf-8")
    overrides = {
        **SHAPE,
        "data.directions": DIRECTIONS,
        "tokenizer.vocabulary": 380,
        **PAPER,
        "training.steps": 250,
        "training.evaluate_every": 250,
        "training.evaluate_pairs": 20,
        "training.label_smoothing": 0.0,
        "training.schedule": "linear",
    }
    for _ in train(files, tmp_path / "run", overrides=overrides):
        pass
    translator, unseen = regard.load_as(regard.Translator, tmp_path / "run"), rows(60, 1)
    for direction in DIRECTIONS:
        source, _, target = direction.partition("-")
        found = translator.translate([spell(row, source) for row in unseen], source=source, target=target, beam=1)
        right = sum(t.text == spell(row, target) for t, row in zip(found, unseen, strict=True))
        assert right > 0.9 * len(unseen), f"{direction}: {right} of {len(unseen)}"
