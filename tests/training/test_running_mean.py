"""Tests of the running mean of the weights: its values, when it replaces the weights, and what is saved."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from regard.model_folder import WEIGHTS
from regard.preparation.train_and_resume import train
from regard.training.run import open_run
from regard.training.weight_running_mean import RunningMean
from regard.weights import read_tensors
from tests.training.corpora import SMALL, write_reversals


def test_the_mean_follows_its_decay_and_forgets_the_first_weights_sooner() -> None:
    model = nn.Linear(1, 1, bias=False)
    mean = RunningMean(model, 0.9)
    expected = 0.0
    with torch.no_grad():
        model.weight.fill_(0.0)
        mean.values["weight"].fill_(0.0)
        for step in range(1, 200):
            model.weight.fill_(step)
            mean.update(step)
            decay = min(0.9, (1 + step) / (10 + step))
            expected = decay * expected + (1 - decay) * step
    assert abs(mean.values["weight"].item() - expected) < 1e-3
    assert abs(199 - expected - 9) < 0.1  # in the long run it lags by decay / (1 - decay) updates


def test_the_mean_replaces_the_weights_only_within_the_block() -> None:
    model = nn.Linear(2, 2)
    mean = RunningMean(model, 0.5)
    own, kept = model.weight.detach().clone(), torch.full((2, 2), 7.0)
    mean.values["weight"].copy_(kept)
    with mean.applied():
        assert torch.equal(model.weight, kept)
    assert torch.equal(model.weight, own)
    assert torch.equal(mean.values["weight"], kept)


def test_without_a_decay_there_is_no_mean() -> None:
    model = nn.Linear(2, 2)
    mean = RunningMean(model, 0.0)
    own = model.weight.detach().clone()
    mean.update(1)
    with mean.applied():
        assert torch.equal(model.weight, own)
    assert not mean.values


def test_a_run_with_a_mean_keeps_the_mean(tmp_path: Path) -> None:
    corpus = write_reversals(tmp_path, 100)
    overrides = {**SMALL, "training.steps": 6, "training.evaluate_every": 6, "training.average": 1, "training.ema": 0.9}
    for _ in train(corpus, tmp_path / "model", overrides=overrides):
        pass
    trainer = open_run(tmp_path / "model")
    weights, _ = read_tensors(tmp_path / "model" / WEIGHTS)
    name = "encoder.layers.0.feed_forward.rise.weight"
    assert torch.equal(weights[name], trainer.mean.values[name])
    assert not torch.equal(weights[name], dict(trainer.model.named_parameters())[name].detach())
