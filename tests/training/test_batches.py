"""Tokenised pairs on disk and the batches made of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import ModelError
from regard.tokens.tokenizer import Specials
from regard.tokens.vocabulary_learning import BOS, EOS, PAD
from regard.training.batch_order import plan_texts
from regard.training.batches import IGNORE, Examples, write_examples

Pairs = list[tuple[list[int], list[int]]]
SIDE = st.lists(st.integers(5, 300), min_size=1, max_size=30)
PAIRS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=60)


def stored(pairs: Pairs, vocabulary: int = 301) -> Examples:
    folder = Path(tempfile.mkdtemp())
    assert write_examples(folder, iter(pairs), vocabulary) == len(pairs)
    return Examples(folder)


@given(PAIRS, st.sampled_from([301, 70_000]))
def test_written_examples_are_read_back(pairs: Pairs, vocabulary: int) -> None:
    examples = stored(pairs, vocabulary)
    assert [(s.tolist(), t.tolist()) for s, t in map(examples.pair, range(len(examples)))] == pairs


def test_large_ids_survive() -> None:
    assert stored([([69_999], [65_536])], 70_000).pair(0)[0].tolist() == [69_999]


@given(PAIRS, st.integers(1, 200), st.integers(0, 5))
def test_every_pair_is_used_once_an_epoch_and_batches_keep_their_budget(pairs: Pairs, budget: int, epoch: int) -> None:
    examples = stored(pairs)
    plan = examples.plan(budget, seed=3, epoch=epoch)
    assert sorted(row for rows in plan for row in rows) == list(range(len(pairs)))
    for rows in plan:
        longest = max(len(side) + 1 for row in rows for side in pairs[row])
        assert len(rows) == 1 or len(rows) * longest <= budget


@given(PAIRS)
def test_a_batch_shifts_the_target_and_pads(pairs: Pairs) -> None:
    batch = stored(pairs).batch(range(len(pairs)), Specials())
    for i, (source, target) in enumerate(pairs):
        assert [t for t in batch.inputs[i].tolist() if t != PAD] == [*source, EOS]
        assert [t for t in batch.labels[i].tolist() if t != IGNORE] == [*target, EOS]
        assert batch.target[i].tolist()[: len(target) + 1] == [BOS, *target]
    real = batch.inputs != PAD
    assert (batch.keep is None and bool(real.all())) or (batch.keep is not None and torch.equal(batch.keep, real))
    assert batch.tokens == int((batch.labels != IGNORE).sum())
    assert batch.seen == batch.tokens + int(real.sum())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=80), st.integers(1, 300), st.integers(0, 5))
def test_texts_of_similar_length_share_a_batch(lengths: list[int], budget: int, seed: int) -> None:
    batches = plan_texts(np.array(lengths), budget, np.random.default_rng(seed))
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * (max(lengths[row] for row in rows) + 2) <= budget


def test_the_plan_depends_only_on_seed_and_epoch() -> None:
    pairs = [([5] * (1 + i % 7), [6] * (1 + i % 5)) for i in range(200)]
    examples = stored(pairs)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in examples.plan(40, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)


def test_there_is_little_padding() -> None:
    dice = np.random.default_rng(0)
    lengths = dice.normal(13, 4, (20_000, 1)).clip(3, 40) + dice.normal(0, 2, (20_000, 2))
    pairs = [([5] * max(1, int(s)), [6] * max(1, int(t))) for s, t in lengths]
    examples = stored(pairs)
    batches = [examples.batch(rows, Specials()) for rows in examples.plan(4096, 1, 0)]
    real = sum(batch.seen for batch in batches)
    assert real / sum(b.inputs.numel() + b.labels.numel() for b in batches) > 0.93


def test_damage_is_named(tmp_path: Path) -> None:
    write_examples(tmp_path, [([5, 6], [7])], 300)
    shard, about = tmp_path / "00000.bin", tmp_path / "about.json"
    whole = shard.read_bytes()
    for spoilt in (whole[:-1], b"", whole[:-1] + bytes([whole[-1] ^ 1]), bytes([whole[0] ^ 1]) + whole[1:]):
        shard.write_bytes(spoilt)
        with pytest.raises(ModelError, match=r"00000.bin: damaged training data .*train again with --overwrite"):
            Examples(tmp_path)
    shard.unlink()
    with pytest.raises(ModelError, match=r"00000.bin: damaged"):
        Examples(tmp_path)
    about.write_text("{")
    with pytest.raises(ModelError, match="damaged training data"):
        Examples(tmp_path)


def test_the_folder_of_an_earlier_version_is_read_as_it_was(tmp_path: Path) -> None:
    """A run that began with an earlier version continues with the same batches."""
    pairs = [([5 + i] * (1 + i % 7), [6] * (1 + i % 5)) for i in range(200)]
    (tmp_path / "about.json").write_text('{"dtype": "uint16", "pairs": 200}')
    np.save(tmp_path / "lengths.npy", np.array([(len(s), len(t)) for s, t in pairs], np.int32))
    np.array([i for pair in pairs for side in pair for i in side], np.uint16).tofile(tmp_path / "tokens.bin")
    earlier, now = Examples(tmp_path), stored(pairs)
    assert [(s.tolist(), t.tolist()) for s, t in map(earlier.pair, range(200))] == pairs
    for one, other in zip(earlier.plan(40, 1, 0), now.plan(40, 1, 0), strict=True):
        assert one.tolist() == other.tolist()
    (tmp_path / "tokens.bin").write_bytes(b"\0\0")
    with pytest.raises(ModelError, match="damaged training data"):
        Examples(tmp_path)
