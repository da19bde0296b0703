"""Small runs from files to a model: events, folder, reproducibility, and ways to end."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import DataError, ModelError, SettingsError
from regard.model_folder import read_settings
from regard.preparation.chosen_settings import load
from regard.preparation.train_and_resume import resume, train
from regard.training import final_weights, loop
from regard.training.batches import Batch
from regard.training.checkpoint import State
from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress
from regard.training.final_weights import best_weights
from regard.training.loop import LocalBatch
from regard.training.run import TrainingRun, open_run
from regard.training.validation import average_snapshots, snapshot_path
from regard.weights import read_folder, read_tensors
from tests.training.corpora import SMALL, write_reversals


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    return write_reversals(tmp_path, 300)


def run(corpus: list[Path], folder: Path, **changes: Any) -> list[Event]:
    overrides = {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}}
    return list(train(corpus, folder, overrides=overrides))


def test_a_run_yields_its_events_and_fills_its_folder(corpus: list[Path], tmp_path: Path) -> None:
    events = run(corpus, tmp_path / "run")
    progress = [e for e in events if isinstance(e, Progress)]
    assert [e.step for e in progress] == list(range(1, 25))
    assert [e.step for e in events if isinstance(e, Evaluation)] == [8, 16, 24]
    prepared = next(e for e in events if isinstance(e, Prepared))
    assert (prepared.examples + prepared.held_out, prepared.preset) == (300, "tiny")
    assert "fewer than 50,000" in prepared.reason
    assert any("dev" in e.text for e in events if isinstance(e, Note))
    assert isinstance(events[-1], Finished)
    assert events[-1].complete
    assert "version:" in events[-1].scores["dev"][0]
    folder = tmp_path / "run"
    assert {p.name for p in folder.iterdir()} == {
        "model.toml", "weights.safetensors", "tokenizer.json", "card.md", "confidence.json", "log.jsonl",
        "manifest.json", "training",
    }  # fmt: skip
    assert "300 pairs read" in (folder / "card.md").read_text()
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in logged if e["event"] == "Evaluation"] == [8, 16, 24]
    assert isinstance(regard.load(folder)("1 2 3"), str)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(corpus: list[Path], tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(corpus, tmp_path / name, training__seed=seed)
    a, b, c = ((tmp_path / name / "weights.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_loss_follows_the_golden_curve(corpus: list[Path], tmp_path: Path) -> None:
    """A change of the losses or of the order of batches fails here."""
    events = run(corpus, tmp_path / "run", model__dropout=0.0, training__warmup=2)
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[::6] == pytest.approx([5.9208, 4.7618, 4.0412, 3.8662], rel=0.01)


def test_accumulated_batches_equal_one_large_batch(corpus: list[Path], tmp_path: Path) -> None:
    """Two batches of an update are averaged over all their tokens, not batch by batch."""
    run(corpus, tmp_path / "run", training__steps=1, model__dropout=0.0)
    trained = open_run(tmp_path / "run")
    pairs = [trained.task.batch(np.arange(3), 0), trained.task.batch(np.arange(3, 10), 0)]
    together = trained.task.batch(np.arange(10), 0)
    apart, whole = (gradients_of(trained, batches) for batches in (pairs, [together]))
    assert apart
    for one, other in zip(apart, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def gradients_of(trained: TrainingRun, batches: list[Batch]) -> list[torch.Tensor]:
    """Returns the gradients that an update on these batches passes to the optimizer."""
    kept: list[torch.Tensor] = []

    def keep(_: object) -> None:
        kept.extend(p.grad.clone() for p in trained.model.parameters() if p.grad is not None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "next_batches", lambda _: [LocalBatch(batch) for batch in batches])
        patch.setattr(trained.scaler, "step", keep)
        loop.update(trained)
    return kept


@pytest.mark.parametrize("clip", [0.0, 0.01, 0.05])
def test_a_gradient_is_clipped_to_its_largest_norm(clip: float, corpus: list[Path], tmp_path: Path) -> None:
    events = run(corpus, tmp_path / "run", training__steps=1, training__clip=clip)
    trained = open_run(tmp_path / "run")
    found = torch.cat([gradient.flatten() for gradient in gradients_of(trained, [trained.task.batch(np.arange(9), 0)])])
    (progress,) = (event for event in events if isinstance(event, Progress))
    assert progress.gradient > 0.1, "what is shown is the norm before"
    if clip:
        assert float(found.norm()) == pytest.approx(clip, rel=1e-3)
    else:
        assert float(found.norm()) > 0.1


def test_a_loss_of_nan_stops_training_and_keeps_the_last_good_checkpoint(
    corpus: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    run(corpus, folder, training__steps=8)
    names = ("weights.safetensors", "training/state-00000008.safetensors")
    before = tuple((folder / name).read_bytes() for name in names)
    spoil_after(11, monkeypatch)
    with pytest.raises(ModelError, match=r"the loss became nan at step 12.*learning_rate"):
        list(resume(folder, overrides={"training.steps": 24}))
    assert before == tuple((folder / name).read_bytes() for name in names)


def spoil_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a weight NaN after this update."""
    update = loop.update

    def spoilt(trained: TrainingRun) -> Progress:
        progress = update(trained)
        if progress.step == step:
            with torch.no_grad():
                next(trained.model.parameters()).fill_(torch.nan)
        return progress

    monkeypatch.setattr(loop, "update", spoilt)


@pytest.mark.parametrize(("patience", "warmup", "last"), [(1, 1, 8), (2, 1, 12), (2, 14, 15), (0, 1, 30)])
def test_early_stopping_ends_a_run_that_learns_nothing(
    patience: int, warmup: int, last: int, corpus: list[Path], tmp_path: Path
) -> None:
    """The first of its evaluations, at step 4, is the best; none stops it before it has warmed up."""
    changes = {"learning_rate": 0.0, "patience": patience, "warmup": warmup, "steps": 30, "metric": "loss"}
    changes |= {"evaluate_every": 4}
    events = run(corpus, tmp_path / "run", **{f"training__{name}": value for name, value in changes.items()})
    assert isinstance(events[-1], Finished)
    assert events[-1].step == last
    assert ("not improved for" in events[-1].reason) == (patience > 0)


def test_final_weights_are_the_mean_or_the_best(corpus: list[Path], tmp_path: Path) -> None:
    run(corpus, tmp_path / "run", training__metric="loss")
    trained = open_run(tmp_path / "run")
    steps = trained.state.ranked("loss")[:2]
    final, _ = read_tensors(tmp_path / "run" / "weights.safetensors")
    choices = [average_snapshots(trained.work, steps), average_snapshots(trained.work, steps[:1])]
    assert any(all(torch.equal(final[name], choice[name]) for name in final) for choice in choices)
    first, second = (read_tensors(snapshot_path(trained.work, step))[0] for step in steps)
    name = next(iter(first))
    torch.testing.assert_close(choices[0][name], (first[name] + second[name]) / 2)


@pytest.mark.parametrize(("metric", "better"), [("loss", -0.5), ("chrf", 0.5)])
@pytest.mark.parametrize("gain", [-1, 0, 1])
def test_the_mean_is_used_unless_the_best_scores_higher(
    metric: str, better: float, gain: int, corpus: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(corpus, tmp_path / "run", training__metric=metric)
    trained = open_run(tmp_path / "run")
    steps = trained.state.ranked(metric)[:2]
    best = next(each[metric] for each in trained.state.evaluations if each["step"] == steps[0])
    monkeypatch.setattr(final_weights, "dev_scores", lambda *_: ({metric: best + gain * better}, []))
    expected = average_snapshots(trained.work, steps[:1] if gain < 0 else steps)
    chosen = best_weights(trained, trained.model, steps)
    assert all(torch.equal(chosen[name], expected[name]) for name in expected)


def test_states_rank_by_metric_and_earlier_wins_ties() -> None:
    evaluations = [{"step": s, "chrf": c, "loss": loss} for s, c, loss in ((1, 5.0, 2.0), (2, 7.0, 1.0), (3, 7.0, 3.0))]
    state = State(evaluations=evaluations)
    assert state.ranked("chrf") == [2, 3, 1]
    assert state.ranked("loss") == [2, 1, 3]


def test_stopping_saves_and_resuming_gives_the_same_weights(corpus: list[Path], tmp_path: Path) -> None:
    run(corpus, tmp_path / "whole")
    stop = threading.Event()
    for event in train(corpus, tmp_path / "parts", overrides=SMALL, stop=stop):
        if isinstance(event, Progress) and event.step == 13:
            stop.set()
        last = event
    assert isinstance(last, Finished)
    assert not last.complete
    assert last.step == 13
    read_folder(tmp_path / "parts")  # a paused run can already be used
    list(resume(tmp_path / "parts"))
    whole, parts = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_stopping_while_preparing_can_be_resumed(corpus: list[Path], tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    *_, last = train(corpus, tmp_path / "run", overrides=SMALL, stop=stop)
    assert isinstance(last, Finished)
    assert not last.complete
    *_, last = resume(tmp_path / "run")
    assert isinstance(last, Finished)
    assert last.complete


def test_resuming_may_change_training_settings_only(corpus: list[Path], tmp_path: Path) -> None:
    run(corpus, tmp_path / "run")
    with pytest.raises(SettingsError, match=r"model\.width cannot be changed"):
        list(resume(tmp_path / "run", overrides={"model.width": 64}))
    events = list(resume(tmp_path / "run", overrides={"training.steps": 26}))
    assert [e.step for e in events if isinstance(e, Progress)] == [25, 26]


@pytest.mark.parametrize(
    ("wrong", "several", "message"),
    [
        ({"parallel": "fsdp", "optimizer": "muon"}, True, "does not support training.optimizer = muon"),
        ({"precision": "float16", "device": "cpu"}, False, "needs a GPU"),
        ({"metric": "accuracy"}, False, "is not available for the task"),
        ({"steps": 0}, False, "training.steps"),
    ],
)
def test_refused_changes_of_settings_are_not_saved(
    wrong: dict[str, Any], several: bool, message: str, corpus: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    list(train(corpus, folder, overrides=SMALL, prepare_only=True))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    given = {f"training.{name}": value for name, value in wrong.items()}
    with pytest.raises(SettingsError, match=message):
        list(resume(folder, overrides=given, prepare_only=several))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_very_many_pairs_are_not_sampled_from_unless_asked(
    corpus: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subword sampling holds all words in memory."""
    monkeypatch.setattr("regard.preparation.pair_preparation.WHOLE", 10)
    given = {**SMALL, "preset": "tiny"}
    notes = [e.text for e in train(corpus, tmp_path / "a", overrides=given, prepare_only=True) if isinstance(e, Note)]
    assert sum("training.subword_sampling is off" in note for note in notes) == 1
    assert read_settings(tmp_path / "a").training.subword_sampling == 0
    assert read_settings(tmp_path / "a").training.ema  # the rest of the preset stays
    list(train(corpus, tmp_path / "b", overrides={**given, "training.subword_sampling": 0.2}, prepare_only=True))
    assert read_settings(tmp_path / "b").training.subword_sampling == 0.2
    monkeypatch.undo()
    list(train(corpus, tmp_path / "c", overrides=given, prepare_only=True))
    assert read_settings(tmp_path / "c").training.subword_sampling == 0.05


def test_a_run_has_the_preset_for_its_size(corpus: list[Path], tmp_path: Path) -> None:
    list(train(corpus, tmp_path / "run", prepare_only=True))
    recorded, preset = read_settings(tmp_path / "run"), load(preset="tiny")
    assert recorded.model == preset.model
    assert replace(recorded.training, precision="auto") == preset.training  # the machine decides about precision
    assert recorded.training.dropout_warmup == 10


def test_a_failed_preparation_leaves_no_trace_and_no_harm(corpus: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.back"
    bad.write_text("1 2 3\n")
    with pytest.raises(DataError, match="misaligned"):
        run([corpus[0], bad], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    run(corpus, tmp_path / "old")
    before = {p: p.read_bytes() for p in (tmp_path / "old").rglob("*") if p.is_file()}
    with pytest.raises(DataError, match="misaligned"):
        list(train([corpus[0], bad], tmp_path / "old", overrides=SMALL, overwrite=True))
    assert {p: p.read_bytes() for p in (tmp_path / "old").rglob("*") if p.is_file()} == before
    with pytest.raises(ModelError, match="already contains a model"):
        run(corpus, tmp_path / "old")


def test_bfloat16_trains_and_float16_on_a_cpu_is_refused(corpus: list[Path], tmp_path: Path) -> None:
    curves = {}
    for precision in ("bfloat16", "float32"):
        events = run(corpus, tmp_path / precision, training__precision=precision, training__steps=8)
        assert isinstance(events[-1], Finished)
        curves[precision] = [e.loss for e in events if isinstance(e, Progress)]
    assert curves["bfloat16"] != curves["float32"]
    assert curves["bfloat16"] == pytest.approx(curves["float32"], rel=0.01)
    with pytest.raises(SettingsError, match="needs a GPU"):
        run(corpus, tmp_path / "half", training__precision="float16", training__device="cpu")


def test_leaked_dev_sentences_are_reported(corpus: list[Path], tmp_path: Path) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_text(corpus[0].read_text().splitlines()[4] + "\t1\nnever seen\t2\n")
    events = train(corpus, tmp_path / "run", dev=[dev], overrides={**SMALL, "training.steps": 1})
    notes = [e.text for e in events if isinstance(e, Note)]
    assert any("1 of 2 dev sources are also in train" in note and "dev.tsv:1" in note for note in notes)


def test_suspicious_pairs_are_reported_and_used(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{n} files %s\t{n} Dateien\n" for n in range(40)), encoding="utf-8")
    events = list(train([path], tmp_path / "run", overrides={**SMALL, "training.steps": 1}))
    notes = [e.text for e in events if isinstance(e, Note)]
    assert "train: 40 pairs read, 40 kept" in notes
    assert f"train: to review (regard check {path} shows details): placeholders differ: 40" in notes


@pytest.mark.parametrize(("value", "resumes"), [(0.0, True), (3.0, False)])
def test_a_run_that_used_a_removed_setting_is_not_resumed(
    value: float, resumes: bool, corpus: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    list(train(corpus, folder, overrides=SMALL, prepare_only=True))
    path = folder / "model.toml"
    path.write_text(path.read_text("utf-8").replace("[training]\n", f"[training]\nrisk = {value}\n"), "utf-8")
    if resumes:
        *_, last = resume(folder, overrides={"training.steps": 4})
        assert isinstance(last, Finished)
    else:
        with pytest.raises(
            SettingsError, match=r"was trained with training\.risk, which this version does not support"
        ):
            list(resume(folder))
