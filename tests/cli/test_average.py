"""regard average."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.weights import parameters, read_folder, read_tensors, write_tensors
from tests.cli.running import call

LINES = b"a dog sees me 5.\nthe cat likes us 7.\n"


def like(model: str, folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """A model folder with other weights."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("training", "native"))
    tensors, metadata = read_tensors(folder / "weights.safetensors")
    write_tensors(folder / "weights.safetensors", {name: change(t) for name, t in tensors.items()}, metadata)
    return folder


def test_the_mean_of_two_lies_between_them(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    other, output = like(model, tmp_path / "other", lambda t: t + 0.02 * torch.randn_like(t)), tmp_path / "mean"
    done = call(capsys, "average", model, str(other), "-o", str(output))
    assert (done.code, done.err) == (0, "")
    assert "mean of 2 models (lowest cosine " in done.out
    first, second, mean = (parameters(read_folder(folder).model) for folder in (Path(model), other, output))
    for name, weight in mean.items():
        assert torch.allclose(weight, (first[name] + second[name]) / 2, atol=1e-7), name
    assert call(capsys, "translate", str(output), stdin=LINES).code == 0
    assert "other (`regard average`)" in (output / "card.md").read_text(encoding="utf-8")
    assert not (output / "confidence.json").exists(), "that is what was measured of another model"
    again = call(capsys, "average", model, str(other), "-o", str(output))
    assert again.code == 2
    assert "--overwrite" in again.err
    assert call(capsys, "average", model, str(other), "-o", str(output), "--overwrite").code == 0


def no_number(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: torch.randn_like(t) * t.std() if t.dim() == 2 else t, "have nothing in common"),
        (no_number, "not finite"),
        (lambda t: t[:-1].contiguous() if t.dim() == 2 else t, "has other tensors"),
    ],
)
def test_what_has_no_mean_is_refused(
    capsys: pytest.CaptureFixture[str],
    model: str,
    tmp_path: Path,
    change: Callable[[torch.Tensor], torch.Tensor],
    message: str,
) -> None:
    other = like(model, tmp_path / "other", change)
    done = call(capsys, "average", model, str(other), "-o", str(tmp_path / "mean"))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("model.toml", 'activation = "', 'activation = "gelu" # "', "another shape"),
        ("tokenizer.json", "the", "teh", "another vocabulary"),
    ],
)
def test_models_of_another_kind_are_refused(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, file: str, before: str, after: str, message: str
) -> None:
    other = like(model, tmp_path / "other", lambda t: t)
    text = (other / file).read_text(encoding="utf-8")
    assert before in text
    (other / file).write_text(text.replace(before, after, 1), encoding="utf-8")
    done = call(capsys, "average", model, str(other), "-o", str(tmp_path / "mean"))
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_one_model_is_not_enough(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    done = call(capsys, "average", model, "-o", str(tmp_path / "mean"))
    assert done.code == 2
    assert "two models or more" in done.err
