"""Tests of saved states: which one is loaded, and how damage is found."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.errors import ModelError
from regard.preparation.train_and_resume import resume, train
from regard.training.checkpoint import (
    State,
    find_damage,
    load_state,
    save_state,
    state_path,
    write_sealed,
)
from regard.training.events import Note
from regard.training.run import read_about
from regard.training.weight_running_mean import RunningMean
from regard.weights import read_tensors, write_tensors
from tests.training.corpora import SMALL, write_reversals

GIVEN = {**SMALL, "training.steps": 12, "training.evaluate_every": 4, "training.ema": 0.9}


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_every_bit_counts(tmp_path: Path) -> None:
    """Damage is found if any bit of a sealed file is flipped (every fifth is tried), or any end is missing."""
    path, copy = tmp_path / "whole.safetensors", tmp_path / "copy.safetensors"
    tensors = {"a": torch.randn(3, 2), "b": torch.zeros(0, 4), "c": torch.arange(5).bfloat16()}
    write_sealed(path, tensors, {"state": "{}", "rows": "[1]"})
    assert find_damage(path) == ""
    size = path.stat().st_size
    for bit in range(0, 8 * size, 5):
        shutil.copyfile(path, copy)
        flip(copy, bit)
        if find_damage(copy) == "":  # the header is JSON: a space in it may be a tab, and nothing else is different
            assert spelt(copy) == spelt(path)
    for length in range(0, size, 9):
        copy.write_bytes(path.read_bytes()[:length])
        assert find_damage(copy)


def spelt(path: Path) -> tuple[dict[str, list[float]], dict[str, str]]:
    tensors, metadata = read_tensors(path)
    return {name: tensor.float().flatten().tolist() for name, tensor in tensors.items()}, metadata


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains a run that seems killed before the last line of its log, with states of steps 8 and 12."""
    root = tmp_path_factory.mktemp("runs")
    list(train(write_reversals(root, 60), root / "run", overrides=GIVEN))
    log = root / "run" / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    assert sorted(path.name for path in (root / "run" / "training").glob("state-*")) == [
        "state-00000008.safetensors",
        "state-00000012.safetensors",
    ]
    return root / "run"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_any(path: Path) -> None:
    flip(path, random.Random(0).randrange(8 * path.stat().st_size // 2, 8 * path.stat().st_size))


@pytest.mark.parametrize("spoil", [truncate, flip_any, lambda path: path.write_bytes(b"")])
def test_a_damaged_state_is_reported_and_the_one_before_is_used(
    spoil: Callable[[Path], None], paused: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(paused, folder)
    spoil(state_path(folder / "training", 12))
    events = list(resume(folder))
    message = next(event.text for event in events if isinstance(event, Note))
    assert f"{state_path(folder / 'training', 12)}: damaged" in message
    assert message.endswith("continuing from step 8 instead")
    for name in ("weights.safetensors", "training/state-00000008.safetensors", "training/state-00000012.safetensors"):
        assert spelt(folder / name)[0] == spelt(paused / name)[0]


def test_if_all_states_are_damaged_the_run_is_refused(paused: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(paused, folder)
    for step in (8, 12):
        truncate(state_path(folder / "training", step))
    with pytest.raises(ModelError, match=r"state-00000012.* damaged .*there is no earlier state: .*remove"):
        list(resume(folder))


def test_a_damaged_checkpoint_is_reported_and_not_averaged(paused: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(paused, folder)
    kept = sorted((folder / "training").glob("step-*"))
    truncate(kept[-1])
    events = list(resume(folder))
    assert f"{kept[-1]}: damaged" in next(event.text for event in events if isinstance(event, Note))


def test_a_state_of_an_earlier_version_is_read(paused: Path, tmp_path: Path) -> None:
    """An earlier version wrote one file without a checksum, whatever the step."""
    folder = tmp_path / "run"
    shutil.copytree(paused, folder)
    tensors, metadata = read_tensors(state_path(folder / "training", 8))
    for path in (folder / "training").glob("state-*"):
        path.unlink()
    write_tensors(folder / "training" / "state.safetensors", tensors, {"state": metadata["state"]})
    list(resume(folder))
    assert spelt(folder / "weights.safetensors") == spelt(paused / "weights.safetensors")


def test_an_incomplete_state_is_ignored(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer, mean = torch.optim.AdamW(model.parameters()), RunningMean(model, 0.0)
    save_state(tmp_path, model, optimizer, mean, State(step=3))
    write_sealed(state_path(tmp_path, 4, 1, 2), {}, {"state": "{}"})
    assert load_state(tmp_path, model, optimizer, mean)[0].step == 3


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    for model, wrong in (
        (nn.Linear(2, 3), "weight has the shape"),
        (nn.Linear(2, 2, bias=False), "does not belong to this model"),
        (nn.Sequential(nn.Linear(2, 2)), "is missing"),
    ):
        other = nn.Linear(2, 2)
        save_state(tmp_path, other, torch.optim.AdamW(other.parameters()), RunningMean(other, 0.0), State(step=1))
        with pytest.raises(ModelError, match=wrong):
            load_state(tmp_path, model, torch.optim.AdamW(model.parameters()), RunningMean(model, 0.0))


def test_facts_of_an_earlier_version_about_the_corpus_are_read(tmp_path: Path) -> None:
    report = {
        "read": 3,
        "further": 0,
        "kept": 2,
        "counts": {"empty": 1},
        "examples": {"empty": ["x:1"]},
        "unit": "pairs",
    }
    (tmp_path / "about.json").write_text(json.dumps({"files": ["x"], "report": report}))
    lines = ["3 pairs read, 2 kept", "1 left out: empty (x:1)"]
    assert read_about(tmp_path) == {"files": ["x"], "corpus": lines}
