"""The demonstration grammar generates the same sentence pairs for ever: its models were trained with exactly these.

A change of a word list, of a weight or of the order of random draws changes every sentence after it. Such a change is
allowed, but never by accident: train the glass model and the demo's model anew, then put the new hashes here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest

from regard.demo.bilingual_phrases import Sentence
from regard.demo.sentence_generator import SentenceSplits, generate_splits
from regard.demo.train_glass_model import generate_glass_splits

GOLDEN = {
    0: ("a3c02d0187fb471f", "faab64fc90fc01c3", "e0a16e8ae76176a6"),
    1: ("c1b5d387bf676c52", "a9b1117f3e6da2d9", "3dedf048eb954923"),
    7: ("8e0105b3b0602651", "69c2b7269b74af4c", "e6723f3077b29edd"),
}  # seed: hashes of train, dev and test
GOLDEN_GLASS = ("d3f0e125c80b56b8", "19ba823858a167e0", "c238a3acf594ad95")


def hash_sentences(sentences: Sequence[Sentence]) -> str:
    rows = (f"{each.source}\t{each.target}\t{each.kind}\t{each.pronoun}\n" for each in sentences)
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:16]


def hash_parts(parts: SentenceSplits) -> tuple[str, str, str]:
    return hash_sentences(parts.train), hash_sentences(parts.dev), hash_sentences(parts.test)


@pytest.mark.parametrize("seed", GOLDEN)
def test_each_seed_generates_its_golden_sentences(seed: int) -> None:
    assert hash_parts(generate_splits(2_000, 100, 200, seed)) == GOLDEN[seed]


def test_the_glass_model_learns_its_golden_sentences() -> None:
    assert hash_parts(generate_glass_splits()) == GOLDEN_GLASS


def test_the_first_sentences_are_the_golden_ones() -> None:
    parts = generate_splits(3, 2, 0)
    assert [f"{each.kind}: {each.source} {each.target}" for each in (*parts.dev, *parts.train)] == [
        "possession: The student's keys are really big. Les clés de l'étudiante sont vraiment grosses.",
        "action: She looks for three bags. Elle cherche trois sacs.",
        "coreference: The queen stayed in my pretty garden because she was very sick. "
        "La reine est restée dans mon joli jardin parce qu'elle était très malade.",
        "question: Does the student have a light bag? Est-ce que l'étudiante a un sac léger ?",
        "coreference: The bird crossed the forest, and it was very quiet. "
        "L'oiseau a traversé la forêt, et elle était très calme.",
    ]
