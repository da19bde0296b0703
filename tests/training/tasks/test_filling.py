"""Gaps have the requested share, are hidden as in Devlin et al. (2019), and never contain special tokens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional as F

from regard.errors import SettingsError
from regard.model.transformer import Encoder
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS, MASK, PAD
from regard.training.batches import IGNORE
from regard.training.tasks.filling import FillingTraining, GapBatch
from regard.weights import Contents, build_model
from tests.training.toys import TOKENIZER, VOCABULARIES, WORDS, settings_for, write_streams

CPU = torch.device("cpu")
documents = st.lists(st.lists(st.integers(5, 299), min_size=1, max_size=30), min_size=1, max_size=6)


def text(words: int, seed: int = 0) -> list[int]:
    return TOKENIZER.encode(" ".join(random.Random(seed).choices([*WORDS, "catdogs", "ranaway"], k=words))).ids


def task_for(
    folder: Path, train: list[list[int]], training: dict[str, Any] | None = None, **model: Any
) -> FillingTraining:
    return FillingTraining(write_streams(folder, train), settings_for("fill", training, **model), VOCABULARIES, CPU)


def gaps(batch: Any) -> GapBatch:
    assert isinstance(batch, GapBatch)
    return batch


def restored(batch: GapBatch) -> torch.Tensor:
    """[B, T] tokens of a batch before some were hidden -> [B, T]."""
    return torch.where(batch.labels != IGNORE, batch.labels, batch.inputs)


# Batches


@given(rows=documents, follows=st.booleans(), words=st.booleans(), update=st.integers(0, 5))
def test_labels_are_the_hidden_tokens(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], follows: bool, words: bool, update: int
) -> None:
    task = task_for(tmp_path_factory.mktemp("s"), rows, {"whole_words": words}, next_sentence=follows)
    seen = []
    for pieces in task.plan(0):
        batch = gaps(task.batch(pieces, update))
        keep = torch.ones_like(batch.inputs, dtype=torch.bool) if batch.keep is None else batch.keep
        hidden = batch.labels != IGNORE
        before = restored(batch)
        assert batch.inputs.shape[1] <= task.settings.model.max_length
        assert batch.tokens == int(hidden.sum())
        assert batch.seen == int(keep.sum())
        assert hidden.any(1).all()  # no text without a gap
        assert (before[~keep] == PAD).all()
        assert not (hidden & ~keep).any()
        assert not np.isin(batch.labels[hidden].numpy(), [PAD, BOS, EOS]).any()
        assert not np.isin(batch.inputs[hidden].numpy(), [PAD, BOS, EOS, 3]).any()
        for row, kept in zip(before, keep, strict=True):
            ids = row[kept].tolist()
            assert (ids[0], ids[-1]) == (BOS, EOS)
            seen.append([token for token in ids if token > 4])
    if not follows:
        pieces = np.concatenate(task.plan(0))
        assert sorted(seen) == sorted(task.train.tokens[a : a + n].tolist() for a, n in pieces)
        assert sum(map(len, seen)) == len(task.train)


def test_the_shares_are_those_of_bert(tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(20_000)], max_length=200)
    pieces = task.train.pieces(task.room, None)
    batch = task.hide(task.train, pieces, np.random.default_rng(0))
    hidden = batch.labels != IGNORE
    count = int(hidden.sum())
    assert count / len(task.train) == pytest.approx(0.15, abs=0.01)
    masked = batch.inputs[hidden] == MASK
    kept = batch.inputs[hidden] == batch.labels[hidden]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float(kept.float().mean()) == pytest.approx(0.1, abs=0.02)
    other = batch.inputs[hidden][~masked & ~kept]
    assert len(other) / count == pytest.approx(0.1, abs=0.02)
    assert len(set(other.tolist())) > 100  # any token, not only those of the text
    assert (batch.inputs[~hidden] != MASK).all()


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_the_share_can_be_set(share: float, tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(5000)], {"masked": share}, max_length=200)
    batch = task.hide(task.train, task.train.pieces(task.room, None), np.random.default_rng(0))
    assert batch.tokens / len(task.train) == pytest.approx(share, rel=0.1)


def test_whole_words_are_hidden_or_not(tmp_path: Path) -> None:
    ids = text(3000)
    inner = TOKENIZER.continues()
    assert any(inner[token] for token in ids)
    for whole in (True, False):
        task = task_for(tmp_path / str(whole), [ids], {"whole_words": whole}, max_length=200)
        batch = task.hide(task.train, task.train.pieces(task.room, None), np.random.default_rng(0))
        hidden, before = batch.labels != IGNORE, restored(batch)
        torn = sum(
            bool(hidden[row, place] != hidden[row, place - 1])
            for row in range(len(before))
            for place in range(2, before.shape[1])  # the first token has nothing to go on with
            if inner[int(before[row, place])]
        )
        assert (torn == 0) == whole
        assert batch.tokens / len(ids) == pytest.approx(0.15, abs=0.02)


def test_at_least_one_token_of_a_text_is_hidden(tmp_path: Path) -> None:
    task = task_for(tmp_path, [[9], [10], [11, 12]], {"masked": 0.01})
    batch = task.hide(task.train, np.array([[0, 1], [1, 1], [2, 2]]), np.random.default_rng(0))
    assert (batch.labels != IGNORE).sum(1).tolist() == [1, 1, 1]


# The next sentence


def test_half_of_the_second_texts_follow_the_first(tmp_path: Path) -> None:
    stream = list(np.random.default_rng(1).integers(5, 299, 4000).tolist())
    task = task_for(tmp_path, [stream], next_sentence=True, max_length=20)
    pieces = task.train.pieces(task.room, None)
    batch = task.hide(task.train, pieces, np.random.default_rng(0))
    assert batch.follows is not None
    assert float(batch.follows.float().mean()) == pytest.approx(0.5, abs=0.1)
    before = restored(batch)
    for row, (start, size) in enumerate(pieces.tolist()):
        ids = before[row][before[row] != PAD].tolist()
        middle = ids.index(EOS)
        first, second = ids[1:middle], ids[middle + 1 : -1]
        if size == 1:
            continue
        assert batch.segments[row].tolist()[: len(ids)] == [0] * (middle + 1) + [1] * (len(second) + 1)
        assert first == stream[start : start + len(first)]
        assert len(first) + len(second) == size
        right = stream[start + len(first) : start + size]
        if batch.follows[row] == 0:
            assert second == right
        elif len(second) > 2:
            assert second != right


def test_without_next_sentence_there_is_one_text(tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(100)])
    batch = gaps(task.batch(task.plan(0)[0], 0))
    assert batch.follows is None
    assert not batch.segments.any()


# What is random


def same(one: GapBatch, other: GapBatch) -> bool:
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)


def test_dev_batches_are_always_equal(tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(100), text(30, 1)], next_sentence=True)
    first = [gaps(batch) for batch in task.dev_batches()]
    task.batch(task.plan(3)[0], 7)
    again = FillingTraining(tmp_path, task.settings, VOCABULARIES, CPU)
    for other in (task, again):
        assert all(same(a, gaps(b)) for a, b in zip(first, other.dev_batches(), strict=True))
    count = sum(int((restored(batch) > 4).sum()) for batch in first)
    assert count == len(task.dev)


def test_gaps_depend_only_on_the_update(tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(300)])
    pieces = task.plan(0)[0]
    first = gaps(task.batch(pieces, 4))
    assert same(first, gaps(FillingTraining(tmp_path, task.settings, VOCABULARIES, CPU).batch(pieces, 4)))
    assert not same(first, gaps(task.batch(pieces, 5)))
    assert not np.array_equal(np.concatenate(task.plan(0)), np.concatenate(task.plan(1)))


# Loss


def encoder(task: FillingTraining) -> Encoder:
    torch.manual_seed(0)
    model = build_model(task.settings, VOCABULARIES).eval()
    assert isinstance(model, Encoder)
    return model


@pytest.mark.parametrize("follows", [False, True])
def test_the_loss_is_the_surprise_at_the_gaps(follows: bool, tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(60), text(9, 1), text(3, 2)], {"batch_tokens": 1000}, next_sentence=follows)
    model = encoder(task)
    (batch,) = map(gaps, task.dev_batches())
    assert model.fill is not None
    with torch.no_grad():
        found = task.loss(model, batch, 0.0)
        states = model(batch.inputs, batch.keep, batch.segments)
        expected = F.cross_entropy(
            model.fill(states).flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE, reduction="sum"
        )
        judged = 0.0
        if follows:
            assert model.follows is not None
            assert batch.follows is not None
            judged = float(F.cross_entropy(model.follows(model.pool(states, batch.keep)), batch.follows))
    assert found.tokens == batch.tokens
    assert found.surprise == pytest.approx(float(expected), rel=1e-4)
    assert float(found.total) == pytest.approx(float(expected) + judged * batch.tokens, rel=1e-4)


def test_assessment_and_report_count_the_gaps(tmp_path: Path) -> None:
    task = task_for(tmp_path, [text(60), text(9, 1)], {"batch_tokens": 1000})
    contents = Contents(task.settings, VOCABULARIES, encoder(task))
    (batch,) = map(gaps, task.dev_batches())
    right = int((task.predict(contents.model, batch) == batch.labels[batch.labels != IGNORE]).sum())
    found = task.assess(contents, 0.0, 0)
    assert found[0] == {"accuracy": pytest.approx(100 * right / batch.tokens)}
    shown = dict(found[1])
    assert shown["text"].count("[…]") == int((batch.labels[0, 1:40] != IGNORE).sum())
    assert shown["right"] == TOKENIZER.decode(restored(batch)[0, :40].tolist())
    lines = task.report(contents, "dev")
    assert f"({batch.tokens} hidden tokens, 15% of all, drawn with seed 0)" in lines[0]
    assert lines[1] == f"accuracy {100 * right / batch.tokens:.2f} % of the hidden tokens"


def test_a_vocabulary_without_gaps_is_refused(tmp_path: Path) -> None:
    vocabulary = Tokenizer(TOKENIZER.model)
    vocabulary.specials = Specials(mask=None)
    with pytest.raises(SettingsError, match="no mask token"):
        FillingTraining(
            write_streams(tmp_path, [text(60)]), settings_for("fill"), Vocabularies(vocabulary, vocabulary), CPU
        )
