"""A plan of a corpus that is too large to plan at once."""

from __future__ import annotations

import numpy as np
import pytest

from regard.tokens.tokenizer import Specials
from regard.training import batch_order as plans, batches
from regard.training.batch_order import WindowedPlan
from regard.training.batches import Examples, write_examples


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Writes pairs with lengths like those of sentences, in three shards."""
    folder, dice = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)
    lengths = dice.normal(13, 4, (30_000, 1)).clip(3, 40) + dice.normal(0, 2, (30_000, 2))
    pairs = [([5] * max(1, int(s)), [6 + i % 60_000] * max(1, int(t))) for i, (s, t) in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "SHARD_PAIRS", 12_345)
        write_examples(folder, pairs, 65_536)
    assert len(list(folder.glob("*.bin"))) == 3
    return Examples(folder)


def plan(examples: Examples, seed: int = 1, epoch: int = 0, whole: int = 8192) -> WindowedPlan:
    return WindowedPlan(examples, 1024, seed, epoch, whole=whole)


def test_every_pair_comes_once_and_batches_keep_their_budget(examples: Examples) -> None:
    found = plan(examples)
    assert len(found.windows) == 4
    assert sorted(row for rows in found for row in rows.tolist()) == list(range(30_000))
    for rows in found:
        assert len(rows) == 1 or len(rows) * (examples.lengths[rows].max() + 1) <= 1024


def test_windows_are_counted_without_planning_them(examples: Examples) -> None:
    found = plan(examples)
    assert [len(found.window(i)) for i in range(4)] == np.diff([0, *found.ends]).tolist()
    assert len(found) == found.ends[-1] == len(list(found))


def test_a_windowed_plan_depends_only_on_seed_and_epoch(examples: Examples) -> None:
    def rows(*which: int) -> list[list[int]]:
        return [each.tolist() for each in plan(examples, *which)]

    assert rows(1, 0) == rows(1, 0)
    assert rows(1, 0) != rows(1, 1)
    assert rows(1, 0) != rows(2, 0)


def test_a_windowed_plan_can_be_indexed_like_a_list(examples: Examples) -> None:
    found, places = list(plan(examples)), (0, 7, -1, len(plan(examples)) // 2)
    other = plan(examples)
    assert all(other[place].tolist() == found[place].tolist() for place in places)
    middle = other.ends[1]
    assert [r.tolist() for r in other[middle - 2 : middle + 2]] == [r.tolist() for r in found[middle - 2 : middle + 2]]
    assert other[len(other) :] == []
    with pytest.raises(IndexError):
        other[len(other)]


def test_neighbours_are_separated_and_there_is_little_padding(examples: Examples) -> None:
    found = plan(examples)
    first = np.concatenate(found.window(0))
    assert first.max() - first.min() > 20_000  # a window has blocks of the whole corpus
    assert not np.array_equal(first, np.sort(first))
    made = [examples.batch(rows, Specials()) for rows in found]
    real = sum(batch.seen for batch in made)
    assert real / sum(b.inputs.numel() + b.labels.numel() for b in made) > 0.94


def test_a_large_corpus_is_planned_in_windows(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(examples.plan(1024, 1, 0), list)
    monkeypatch.setattr(batches, "WHOLE", 20_000)
    assert isinstance(examples.plan(1024, 1, 0), WindowedPlan)


def test_lengths_are_those_of_the_pairs(examples: Examples) -> None:
    rows = [0, 12_344, 12_345, 29_999, 5]
    assert examples.lengths[rows].tolist() == [[len(side) for side in examples.pair(row)] for row in rows]
    assert np.array_equal(examples.lengths_between(12_000, 13_000), examples.lengths[12_000:13_000])
    assert plans.BLOCK < 12_345
