"""The cost of training is counted, measured and estimated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from regard.decoding.decoder_step import TranslationStep
from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_report import Report
from regard.preparation import cost_estimate as module
from regard.preparation.chosen_settings import gather, resolve
from regard.preparation.corpus_sample import Sample, invented_pairs, invented_texts, sample_pairs, sample_texts
from regard.preparation.cost_estimate import Estimate, Measured, TrainingMemory, estimate, measure
from regard.settings import DataSettings
from regard.training.run import open_run
from tests.training.corpora import SMALL, write_reversals

MEMORY = TrainingMemory(weights=400, gradients=400, moments=800, mean=0, rest=1000, peak=2600)
MEASURED = Measured(
    device="cpu",
    threads=2,
    steps=9,
    seconds_per_step=0.5,
    tokens_per_step=1000,
    tokens_per_unit=20,
    flops_per_token=6e6,
    parameters=100,
    tables=40,
    vocabulary=400,
    preparing=0.001,
    evaluating=2.0,
    finishing=5.0,
    memory=MEMORY,
)
SETTINGS = resolve({"training": {"steps": 100, "evaluate_every": 40}, "data": {"dev_pairs": 100}})


def reckon(devices: int = 1, efficiency: float = 0.8, speed: float = 1.0, measured: Measured = MEASURED) -> Estimate:
    sample = Sample([], [], 50, 10_100)
    return estimate(measured, SETTINGS, sample, devices=devices, efficiency=efficiency, speed=speed)


def test_the_whole_cost_is_computed_from_the_sample() -> None:
    found = reckon()
    assert (found.units, found.tokens, found.epochs) == (10_000, 200_000, 0.5)
    assert (found.tokens_per_second, found.epoch_seconds) == (2000, 100)
    assert found.preparing_seconds == pytest.approx(10.1)
    assert found.evaluating_seconds == 2 * 2.0 + 5.0
    assert found.seconds == pytest.approx(10.1 + 100 * 0.5 + 9)
    assert (found.memory, found.disk) == (2600, 200_000 * 2 + 8 * 10_000)


def test_devices_share_the_work_and_their_state_may_be_sharded() -> None:
    found = reckon(devices=4, speed=2.0)
    assert found.tokens_per_second == pytest.approx(2000 * 4 * 0.8 * 2)
    assert found.seconds == pytest.approx(10.1 + 100 * 1000 / 12_800 + 4.5)
    assert (found.memory, found.memory_sharded) == (2600, 1600 // 4 + 1000)
    assert reckon(efficiency=0.1).seconds == reckon().seconds  # one device waits for nobody
    assert reckon(measured=replace(MEASURED, vocabulary=70_000)).disk == 200_000 * 4 + 80_000


def test_real_steps_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_STEPS", 6)
    sample = sample_pairs(write_reversals(tmp_path, 400), DataSettings(), tmp_path)
    messages: list[str] = []
    given = gather(None, {**SMALL, "training.ema": 0.9})
    found = measure(sample, given, tmp_path / "run", 0.01, messages.append)
    assert (found.steps, found.device, found.threads) == (3, "cpu", 1)
    trainer = open_run(tmp_path / "run")
    assert found.parameters == sum(p.numel() for p in trainer.model.parameters())
    assert found.tables == 32 * found.vocabulary
    lengths = trainer.task.train.lengths  # type: ignore[attr-defined]
    assert found.tokens_per_unit == pytest.approx(lengths.sum(1).mean() + 2)
    assert 0 < found.tokens_per_step < 2 * 256
    weights = found.parameters * 4
    assert (found.memory.weights, found.memory.gradients, found.memory.mean) == (weights, weights, weights)
    assert 2 * weights <= found.memory.moments < 2 * weights + 1000
    assert found.memory.peak == pytest.approx(sum((found.memory.state, found.memory.rest)))
    assert found.evaluating > 0
    assert messages


def test_memory_is_measured_with_outputs_of_the_greatest_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trained model may end outputs later, so memory is measured up to the limit, in a full batch."""
    sample = sample_pairs(write_reversals(tmp_path, 400), DataSettings(), tmp_path)
    given = gather(None, {**SMALL, "training.evaluate_pairs": 500, "data.dev_pairs": 390, "decoding.batch_tokens": 900})
    rows: list[int] = []

    def counted(step: TranslationStep, tokens: Tensor) -> Tensor:
        rows.append(len(tokens))
        return real(step, tokens)

    measure(sample, given, tmp_path / "run", 0.01, lambda _: None)
    trainer = open_run(tmp_path / "run")
    real = TranslationStep._next
    monkeypatch.setattr(TranslationStep, "_next", counted)
    module._decode_longest_batch(trainer, sample)
    longest = max(
        map(len, trainer.vocabularies.source.encode_batch([p["source"] for p in trainer.task.held_out("dev")]))
    )
    assert rows == [900 // (longest + 1)] * min(2 * longest + 20, 32)
    assert trainer.model.training


def test_memory_of_subword_sampling_grows_with_the_corpus(tmp_path: Path) -> None:
    sample = sample_pairs(write_reversals(tmp_path, 400), DataSettings(), tmp_path)
    one, none = (
        measure(
            sample,
            gather(None, {**SMALL, "training.subword_sampling": rate}),
            tmp_path / f"{rate}",
            0.01,
            lambda _: None,
        )
        for rate in (0.1, 0.0)
    )
    assert none.memory.unit == 0
    assert 50 < one.memory.unit < 500  # bytes of a pair of 4.5 words a side
    larger = replace(sample, whole=sample.size + 1000)
    reckoned = estimate(one, SETTINGS, larger, devices=1, efficiency=1.0, speed=1.0)
    assert reckoned.memory == one.memory.peak + int(1000 * one.memory.unit)


def test_operations_are_counted_for_all_matrices(tmp_path: Path) -> None:
    """A weight needs six operations per token, two forward and four backward; attention adds its two products."""
    sample = sample_pairs(write_reversals(tmp_path, 60, longest=3), DataSettings(), tmp_path)
    given = gather(None, {**SMALL, "model.dropout": 0.0, "training.batch_tokens": 100_000})
    found = measure(sample, given, tmp_path / "run", 0.01, lambda _: None)
    trainer = open_run(tmp_path / "run")
    batch = trainer.task.batch(np.asarray(trainer.task.plan(0)[0]), 0)
    source, target = batch.inputs.numel(), batch.labels.numel()
    sizes = {name: p.numel() for name, p in trainer.model.named_parameters() if p.dim() == 2}
    encoder = sum(n for name, n in sizes.items() if name.startswith("encoder"))
    read = ("cross_attention.key.weight", "cross_attention.value.weight")  # these read the source
    cross = sum(n for name, n in sizes.items() if name.endswith(read))
    decoder = sum(n for name, n in sizes.items() if name.startswith("decoder")) - cross
    logits = 32 * found.vocabulary
    linear = 6 * (source * (encoder + cross) + target * decoder + batch.tokens * logits)  # of what has a label
    assert 0.95 * linear <= found.flops_per_token * batch.seen <= 1.15 * linear


def test_operations_of_a_recurrent_network_are_counted_too(tmp_path: Path) -> None:
    sample = sample_pairs(write_reversals(tmp_path, 60, longest=3), DataSettings(), tmp_path)
    layers = {"model.dropout": 0.0, "model.encoder_layers": 1, "model.decoder_layers": 1}
    found = {}
    for kind in ("lstm", "gru"):
        given = gather(None, {**SMALL, **layers, "model.kind": kind, "training.batch_tokens": 100_000})
        found[kind] = measure(sample, given, tmp_path / kind, 0.01, lambda _: None).flops_per_token
    assert found["lstm"] > found["gru"] > 6 * 2 * 32 * 32  # four gates, three, and at least a matrix and a half each


def test_a_sample_is_spread_over_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"{i} a\t{i} b\n" for i in range(1000)) + "\t\n")
    monkeypatch.setattr("regard.preparation.corpus_sample.MOST_PAIRS", 100)
    found = sample_pairs([tmp_path / "x.tsv"], DataSettings(), tmp_path)
    assert found.whole == 1000
    kept = [int(p.source.split()[0]) for p in read_pairs([*found.dev, *found.train], DataSettings(), Report())]
    assert kept == list(range(0, 1000, 16))
    assert found.size == len(kept)
    (tmp_path / "one.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match="too few pairs"):
        sample_pairs([tmp_path / "one.tsv"], DataSettings(), tmp_path)
    (tmp_path / "text.txt").write_text("one line\n\nanother\n")
    assert sample_texts([tmp_path / "text.txt"], DataSettings(), tmp_path).whole == len("one line\n\nanother")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="no text"):
        sample_texts([tmp_path / "empty.txt"], DataSettings(), tmp_path)


def test_invented_corpora_have_the_given_size(tmp_path: Path) -> None:
    found = invented_pairs(3_000_000, 90_000_000, tmp_path)
    assert (found.whole, found.tokens, found.size) == (3_000_000, 90_000_000, 25_000)
    words = [len(line.split("\t")[0].split()) for line in found.train[0].read_text().splitlines()]
    assert np.mean(words) == pytest.approx(15 / 1.6, rel=0.05)
    text = invented_texts(5_000_000, tmp_path)
    assert (text.tokens, text.whole) == (5_000_000, text.size)
