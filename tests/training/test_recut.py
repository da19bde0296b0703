"""Subword sampling keeps text and tags, makes nothing too long, and is reproducible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.preparation.train_and_resume import train
from regard.settings import TokenizerSettings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Examples, ResampledExamples, write_examples
from regard.training.run import open_run
from tests.training.corpora import SMALL, write_reversals

TEXTS = ["the lower the newest", "newer and wider", "a b c", "widest lowest", "x"] * 4


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerSettings(vocabulary=310, tags=("de",)))


@pytest.fixture
def usual(tmp_path: Path, tokenizer: Tokenizer) -> Examples:
    ids = tokenizer.encode_batch(TEXTS)
    tagged = [[tokenizer.tags["de"], *row] if number % 2 else row for number, row in enumerate(ids)]
    write_examples(tmp_path / "train", zip(tagged, ids, strict=True), tokenizer.size)
    return Examples(tmp_path / "train")


def letters(tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns every text in its smallest pieces."""
    rows = [[i for character in text for i in tokenizer.encode_continuation(character)] for text in TEXTS]
    return np.concatenate([np.array(row, np.int32) for row in rows]), np.cumsum([0, *map(len, rows)])


def test_tags_stay_and_long_pairs_keep_their_usual_subwords(usual: Examples, tokenizer: Tokenizer) -> None:
    cut = letters(tokenizer)
    recut = ResampledExamples(usual, cut, cut, tokenizer.specials, longest=17)
    tag = tokenizer.tags["de"]
    long = 0
    for row, text in enumerate(TEXTS):
        source, target = (side.tolist() for side in recut.pair(row))
        assert (len(source), len(target)) == tuple(recut.lengths[row])
        assert max(len(source), len(target)) <= 17
        assert tokenizer.decode(target) == text
        assert (source[:1] == [tag]) == bool(row % 2)
        assert tokenizer.decode(source) == text
        long += source == usual.pair(row)[0].tolist()
    assert 0 < long < len(TEXTS)
    batch = recut.batch(range(4), tokenizer.specials)
    assert batch.inputs.shape[1] == recut.lengths[:4, 0].max() + 1


def test_each_epoch_has_other_subwords_which_depend_on_the_seed(tmp_path: Path) -> None:
    corpus = write_reversals(tmp_path, 60)
    overrides = {**SMALL, "training.steps": 1, "training.subword_sampling": 0.3}
    for _ in train(corpus, tmp_path / "model", overrides=overrides):
        pass

    def epoch(number: int) -> list[list[int]]:
        task = open_run(tmp_path / "model").task
        task.plan(number)
        return [task.batch([row], 0).inputs[0].tolist() for row in range(40)]  # type: ignore[arg-type]

    first, second = epoch(0), epoch(1)
    assert first == epoch(0)
    assert first != second
    spelt = [
        [Vocabularies.load(tmp_path / "model" / "tokenizer.json").source.decode(row) for row in each]
        for each in (first, second)
    ]
    assert spelt[0] == spelt[1]
