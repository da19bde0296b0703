"""Recurrent networks learn to copy in the same trainer, on the same data."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.preparation.train_and_resume import resume, train
from tests.learning.test_digits import SETTINGS, rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_network_copies_digits(kind: str, tmp_path: Path) -> None:
    corpus = tmp_path / "digits.tsv"
    corpus.write_text("".join(f"{row}\t{row}\n" for row in rows(8000, 0)))
    shape = {"model.kind": kind, "model.encoder_layers": 1, "model.decoder_layers": 1}
    pace = {"training.steps": 1000, "training.evaluate_every": 1000}
    for _ in train([corpus], tmp_path / "run", overrides={**SETTINGS, **shape, **pace}):
        pass
    unseen = rows(500, 1)
    found = regard.load_as(regard.Translator, tmp_path / "run").translate(unseen, beam=1)
    right = sum(t.text == row for t, row in zip(found, unseen, strict=True))
    assert right > 0.99 * len(unseen), f"{right} of {len(unseen)}"
    assert (
        f"1 + 1 layers of {kind.upper()}, width 64, attention of 4 heads" in (tmp_path / "run" / "card.md").read_text()
    )


def test_a_run_in_two_parts_equals_a_run_in_one(tmp_path: Path) -> None:
    """Dropout depends on the number of the update, so resuming changes no bit."""
    corpus = tmp_path / "digits.tsv"
    corpus.write_text("".join(f"{row}\t{row}\n" for row in rows(200, 0)))
    shape = {
        "model.kind": "lstm",
        "model.width": 16,
        "model.heads": 2,
        "model.dropout": 0.3,
        "tokenizer.vocabulary": 300,
    }
    pace = {
        "training.steps": 6,
        "training.evaluate_every": 2,
        "training.evaluate_pairs": 2,
        "training.batch_tokens": 128,
    }
    overrides = {**shape, **pace, "training.threads": 1, "model.encoder_layers": 2, "model.decoder_layers": 2}
    for _ in train([corpus], tmp_path / "whole", overrides=overrides):
        pass
    for _ in train([corpus], tmp_path / "parts", overrides={**overrides, "training.steps": 4}):
        pass
    for _ in resume(tmp_path / "parts", overrides={"training.steps": 6}):
        pass
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]
