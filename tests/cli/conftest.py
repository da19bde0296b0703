from __future__ import annotations

import io
import random
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from regard.cli import main

torch.set_num_threads(1)  # toys are too small to share; two threads would wait for each other

SUBJECTS = [("a dog", "ein Hund"), ("the cat", "die Katze"), ("she", "sie"), ("my uncle", "mein Onkel")]
VERBS = [("sees", "sieht"), ("hears", "hört"), ("likes", "mag")]
OBJECTS = [("the café", "das Café"), ("a tree", "einen Baum"), ("me", "mich"), ("us", "uns")]

TINY = [
    *("--tokenizer.vocabulary", "400"),
    *("--model.width", "16", "--model.heads", "2", "--model.hidden", "32", "--model.max_length", "32"),
    *("--model.encoder_layers", "1", "--model.decoder_layers", "1", "--model.dropout", "0"),
    *("--model.norm", "post", "--model.norm_kind", "layer", "--model.positions", "sinusoidal"),
    *("--model.activation", "relu", "--training.schedule", "inverse-sqrt", "--training.ema", "0"),
    *("--training.subword_sampling", "0"),
    *("--training.batch_tokens", "500", "--training.warmup", "5", "--training.learning_rate", "0.02"),
    *("--training.steps", "20", "--training.evaluate_every", "10", "--training.evaluate_pairs", "5"),
    *("--training.threads", "1", "--training.device", "cpu"),
    *("--training.optimizer", "adam", "--training.precision", "float32"),
]
"""A model that trains in a second."""


def write_corpus(folder: Path, name: str = "train", pairs: int = 120, seed: int = 1) -> list[str]:
    """Writes two files of sentences that are not all different; returns their names."""
    dice = random.Random(seed)
    rows = []
    for _ in range(pairs):
        words = [dice.choice(choices) for choices in (SUBJECTS, VERBS, OBJECTS)]
        number = f" {dice.randint(1, 99)}."
        rows.append([" ".join(word[side] for word in words) + number for side in (0, 1)])
    names = [folder / f"{name}.{language}" for language in ("en", "de")]
    for side, path in enumerate(names):
        path.write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    return [str(path) for path in names]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model folder, and what the command printed while it trained; nobody changes it."""
    folder = tmp_path_factory.mktemp("trained")
    files = write_corpus(folder)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["train", *files, "-o", str(folder / "en-de"), *TINY]) == 0
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])
    return folder / "en-de", printed.getvalue()


@pytest.fixture
def model(trained: tuple[Path, str]) -> str:
    return str(trained[0])


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """`regard train` takes Ctrl-C for itself."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])
