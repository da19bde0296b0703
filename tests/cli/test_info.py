"""What is in a folder, and what is on the machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.weights import read_folder
from tests.cli.running import call


def test_a_model_is_described(capsys: pytest.CaptureFixture[str], model: str) -> None:
    done = call(capsys, "info", model)
    assert (done.code, done.err) == (0, "")
    first, second, third, blank, *card = done.out.splitlines()
    assert first == f"{model}: translate en -> de, preset tiny"
    assert second.startswith("1 + 1 layers, width 16, feed-forward 32, 2 heads, post-norm, sinusoidal positions")
    size = (Path(model) / "weights.safetensors").stat().st_size
    count = sum(parameter.numel() for parameter in read_folder(Path(model)).model.parameters())
    assert third == f"{count:,} parameters, {size / 2**20:.1f} MiB"
    assert blank == ""
    assert card == (Path(model) / "card.md").read_text(encoding="utf-8").splitlines()


def test_a_folder_without_weights_or_card_is_described(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    (copy / "card.md").unlink()
    assert call(capsys, "info", str(copy)).out.count("\n") == 3
    (copy / "weights.safetensors").unlink()
    done = call(capsys, "info", str(copy))
    assert done.code == 0
    assert done.out.endswith("no weights yet: training has not reached its first evaluation\n")


def test_describing_a_model_does_not_load_torch(model: str) -> None:
    program = "import sys; from regard.cli import main; main(['info', sys.argv[1]]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program, model], capture_output=True, check=True)


def test_the_machine_is_described(capsys: pytest.CaptureFixture[str], model: str) -> None:
    done = call(capsys, "info", "--system")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"regard {regard.__version__}, Python 3.")
    assert f"\ntorch {torch.__version__}\n" in done.out
    assert f"CPU: {torch.get_num_threads()} threads" in done.out
    both = call(capsys, "info", model, "--system").out
    assert both.startswith(model)
    assert both.endswith(done.out)
