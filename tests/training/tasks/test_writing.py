"""In windows of a text, each token is predicted from those before it in its document; dev tokens count once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.decoding.pytorch_engine import writer_of
from regard.model.transformer import Decoder
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS
from regard.training.batches import IGNORE
from regard.training.tasks.writing import TextBatch, WritingTraining, stream_surprise
from regard.weights import Contents, build_model
from tests.training.toys import TOKENIZER, VOCABULARIES, settings_for, write_streams

CPU = torch.device("cpu")
TEXTS = ["the cat sat.", "a dog ran far away and the cat sat on a mat.", "the dogs.", "far away the cats ran."]
DOCUMENTS = [[BOS, *TOKENIZER.encode(text).ids, EOS] for text in TEXTS]
rows = st.lists(st.lists(st.integers(5, 99), max_size=20).map(lambda ids: [BOS, *ids, EOS]), min_size=2, max_size=6)


def task_for(folder: Path, train: list[list[int]], dev: list[list[int]] | None = None, **model: Any) -> WritingTraining:
    return WritingTraining(write_streams(folder, train, dev), settings_for("write", **model), VOCABULARIES, CPU)


def decoder(task: WritingTraining, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    model = build_model(task.settings, VOCABULARIES).eval()
    assert isinstance(model, Decoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


@given(documents=rows)
def test_labels_are_the_next_tokens_of_the_same_document(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]]
) -> None:
    task = task_for(tmp_path_factory.mktemp("stream"), documents)
    flat = [token for row in documents for token in row]
    number = [i for i, row in enumerate(documents) for _ in row]
    for starts in task.plan(0):
        batch = task.batch(starts, 0)
        assert isinstance(batch, TextBatch)
        assert batch.tokens == int((batch.labels != IGNORE).sum())
        assert batch.inputs.shape == (len(starts), task.length)
        assert batch.seen == batch.inputs.numel() <= max(60, task.length)
        for i, start in enumerate(starts):
            places = range(start, start + task.length)
            assert batch.inputs[i].tolist() == [flat[place] for place in places]
            expected = [flat[p + 1] if number[p] == number[p + 1] else IGNORE for p in places]
            assert batch.labels[i].tolist() == expected
        several = any(number[s] != number[s + task.length - 1] for s in starts)
        assert (batch.documents is not None) == several


@given(documents=rows)
def test_the_dev_set_is_predicted_whole_and_always_the_same(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]]
) -> None:
    task = task_for(tmp_path_factory.mktemp("stream"), [[BOS, *range(5, 90), EOS]], documents)
    batches = list(task.dev_batches())
    labels = [label for b in batches if isinstance(b, TextBatch) for label in b.labels.flatten().tolist()]
    flat = [token for row in documents for token in row]
    number = [i for i, row in enumerate(documents) for _ in row]
    assert labels == [flat[p + 1] if number[p] == number[p + 1] else IGNORE for p in range(len(flat) - 1)]
    for one, other in zip(batches, task.dev_batches(), strict=True):
        assert isinstance(one, TextBatch)
        assert isinstance(other, TextBatch)
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)


def test_epochs_depend_only_on_the_seed(tmp_path: Path) -> None:
    task = task_for(tmp_path, [[BOS, *range(5, 299), EOS]])
    first, again, second = (np.concatenate(task.plan(epoch)) for epoch in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.sort(first))


def test_with_one_token_for_begin_and_end_the_next_begin_is_predicted(tmp_path: Path) -> None:
    """GPT-2 has one token for both, which ends a document."""
    vocabulary = Tokenizer(TOKENIZER.model)
    vocabulary.specials = Specials(pad=1, begin=1, end=1, unknown=None, mask=None)
    folder = write_streams(tmp_path, [[1, 9, 9], [1, 8, 8], [1, 7, 7]])
    task = WritingTraining(folder, settings_for("write"), Vocabularies(vocabulary, vocabulary), CPU)
    batch = task.cut(task.train, np.array([0]), 8)
    assert batch.labels[0].tolist() == [9, 9, 1, 8, 8, 1, 7, 7]
    assert batch.documents is not None


def test_packed_documents_have_the_loss_of_single_ones(tmp_path: Path) -> None:
    """With relative positions, the loss of a document does not depend on those before it in its row."""
    task = task_for(tmp_path, DOCUMENTS, positions="rotary", max_length=80)
    model = decoder(task)
    packed = task.loss(model, task.cut(task.train, np.array([0]), len(task.train) - 1), 0.0)
    alone = 0.0
    for number, row in enumerate(DOCUMENTS):
        single = task_for(tmp_path / str(number), [row], positions="rotary", max_length=80)
        alone += task.loss(model, single.cut(single.train, np.array([0]), len(row) - 1), 0.0).surprise
    assert packed.surprise == pytest.approx(alone, rel=1e-5)
    assert packed.tokens == sum(len(row) - 1 for row in DOCUMENTS)


def test_the_surprise_of_a_stream_is_that_of_a_writer(tmp_path: Path) -> None:
    text = "a dog ran far away and the cat sat on a mat. " * 4
    ids = TOKENIZER.encode(text).ids
    task = task_for(tmp_path, [[BOS, *ids]])
    model = decoder(task)
    assert len(ids) > 3 * task.length
    surprise, count = stream_surprise(task, model, task.train)
    scored = writer_of(Contents(task.settings, VOCABULARIES, model)).score(text)
    assert count == len(scored.tokens) == len(ids)
    assert surprise == pytest.approx(scored.surprise, rel=1e-5)


def test_assessment_and_report_contain_nats_per_character(tmp_path: Path) -> None:
    task = task_for(tmp_path, DOCUMENTS)
    contents = Contents(task.settings, VOCABULARIES, decoder(task))
    found = task.assess(contents, 30.0, 1)
    assert found[0] == {"nats_per_character": 30.0 / task.dev.characters}
    assert [name for name, _ in found[1]] == ["prompt", "model"]
    surprise, count = stream_surprise(task, contents.model, task.dev)
    lines = task.report(contents, "dev")
    assert lines[0].startswith(f"perplexity {np.exp(surprise / count):.2f} per token ({count} tokens")
    assert lines[1].startswith(f"{surprise / task.dev.characters:.4f} nats")
