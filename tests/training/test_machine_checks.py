"""The precision suits the machine, and is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.model_folder import read_settings
from regard.preparation.train_and_resume import train
from regard.settings import Settings, TrainingSettings
from regard.training.machine_setup import choose_precision, has_fast_bfloat16
from tests.training.corpora import SMALL, write_reversals

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("able", "precision"),
    [
        ({"avx512_bf16": True, "amx_tile": False}, "bfloat16"),
        ({"avx512_bf16": True, "amx_tile": True}, "float32"),  # which may be a trap
        ({"avx2": True}, "float32"),
    ],
)
def test_precision_depends_on_the_capabilities_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], precision: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert choose_precision(Settings(training=TrainingSettings(precision="auto")), CPU).training.precision == precision
    for said in ("float32", "bfloat16"):
        settings = Settings(training=TrainingSettings(precision=said))
        assert choose_precision(settings, CPU) is settings


def test_other_devices_use_float32() -> None:
    assert not has_fast_bfloat16(torch.device("mps"))


def test_chosen_settings_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that continues on another machine keeps its precision."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    corpus = write_reversals(tmp_path, 60)
    list(train(corpus, tmp_path / "run", overrides={**SMALL, "training.steps": 1, "training.precision": "auto"}))
    assert read_settings(tmp_path / "run").training.precision == "bfloat16"
