"""Corpora and folders for the tasks that do not translate, small enough for a test."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from regard.preparation.chosen_settings import resolve
from regard.settings import Settings, TokenizerSettings
from regard.tokens.token_streams import write_stream
from regard.tokens.tokenizer import Tokenizer, Vocabularies

WORDS = "the cat dog sat on a mat and ran far away".split()  # noqa: SIM905

TINY: dict[str, Any] = {
    "tokenizer.vocabulary": 320,
    "model.width": 16,
    "model.heads": 2,
    "model.hidden": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.max_length": 24,
    "training.batch_tokens": 200,
    "training.steps": 6,
    "training.evaluate_every": 3,
    "training.warmup": 2,
    "training.learning_rate": 5e-3,
    "training.threads": 1,
    "training.device": "cpu",
}
"""Settings under which a run takes a fraction of a second."""


def write_text(folder: Path, name: str = "text.txt", lines: int = 80, seed: int = 0) -> Path:
    """Writes a file of sentences."""
    dice = random.Random(seed)
    path = folder / name
    path.write_text("".join(" ".join(dice.choices(WORDS, k=dice.randint(3, 9))) + ".\n" for _ in range(lines)))
    return path


def write_labels(folder: Path, name: str = "labels.tsv", rows: int = 80, seed: int = 0, two: bool = False) -> Path:
    """Writes a table of texts, or of pairs of texts, that are good or bad."""
    dice = random.Random(seed)
    lines = ["label\ttext\ttext_b" if two else "label\ttext"]
    for number in range(rows):
        label = dice.choice(["good", "bad"])
        texts = [f"{' '.join(dice.choices(WORDS, k=3))} {label} {number}" for _ in range(1 + two)]
        lines.append("\t".join([label, *texts]))
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def write_words(folder: Path, name: str = "words.conll", rows: int = 60, seed: int = 0, longest: int = 6) -> Path:
    """Writes sentences with a label for each word: animals are marked."""
    dice = random.Random(seed)
    path = folder / name
    sentences = [dice.choices([*WORDS, "dog12", "3.5"], k=dice.randint(2, longest)) for _ in range(rows)]
    marked = [[f"{word} {'B-animal' if word[:3] in ('cat', 'dog') else 'O'}" for word in row] for row in sentences]
    path.write_text("\n\n".join("\n".join(row) for row in marked) + "\n")
    return path


SHAPE: dict[str, Any] = {
    "width": 16, "heads": 2, "hidden": 32, "encoder_layers": 1, "decoder_layers": 1, "max_length": 12, "dropout": 0.0,
}  # fmt: skip
TOKENIZER = Tokenizer.train(
    [f"the cats {a} dogs {b}." for a in WORDS for b in WORDS], TokenizerSettings(vocabulary=320)
)
VOCABULARIES = Vocabularies(TOKENIZER, TOKENIZER)


def settings_for(task: str, training: dict[str, Any] | None = None, **model: Any) -> Settings:
    return resolve(
        {
            "task": task,
            "model": {**SHAPE, **model},
            "training": {"device": "cpu", "batch_tokens": 60, **(training or {})},
        }
    )


def write_streams(folder: Path, train: list[list[int]], dev: list[list[int]] | None = None) -> Path:
    """Writes documents of ids in the format of a task; a token is a character."""
    for name, documents in (("train", train), ("dev", dev or train)):
        write_stream(folder / name, ((ids, True, len(ids)) for ids in documents), TOKENIZER.size)
    return folder
