"""regard quantize, and the choice of engine and precision on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.decoding.native.compiled_library import instructions, reason_unavailable
from regard.model.kernels.fused import best_instructions
from regard.weights import parameters, read_folder
from tests.cli.running import call, process

LINES = b"a dog sees me 5.\nthe cat likes us 7.\n"
native = pytest.mark.skipif(reason_unavailable() is not None, reason="no C++ compiler was there")


def test_a_quantized_folder_is_smaller_and_says_the_same(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    output = tmp_path / "int8"
    done = call(capsys, "quantize", model, "-o", str(output))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{output}: ")
    before, after = (parameters(read_folder(folder).model) for folder in (Path(model), output))
    for name, weight in before.items():
        most = 32767 if "tokens" in name or "logits" in name else 127
        step = weight.abs().amax(-1, keepdim=True) / most if weight.dim() == 2 else torch.zeros(1)
        assert ((weight - after[name]).abs() <= step * 0.505).all(), name
    size = [(folder / "weights.safetensors").stat().st_size for folder in (Path(model), output)]
    assert size[1] < 0.56 * size[0]  # of a toy much is names, and the table of tokens
    expected = call(capsys, "translate", model, stdin=LINES).out
    found = [
        call(capsys, "translate", str(output), "--engine", engine, stdin=LINES).out for engine in ("auto", "torch")
    ]
    assert [len(text.splitlines()) for text in (expected, *found)] == [2, 2, 2]
    assert "int8" in (output / "card.md").read_text(encoding="utf-8")
    assert (output / "confidence.json").read_bytes() == (Path(model) / "confidence.json").read_bytes()
    again = call(capsys, "quantize", model, "-o", str(output))
    assert again.code == 2
    assert "--overwrite" in again.err
    assert call(capsys, "quantize", str(output), "-o", str(tmp_path / "twice")).code == 0
    twice = parameters(read_folder(tmp_path / "twice").model)
    assert all(torch.allclose(after[name], twice[name], rtol=1e-6, atol=0) for name in after)


@native
def test_the_engine_is_chosen(capsys: pytest.CaptureFixture[str], model: str) -> None:
    outputs = {
        engine: call(capsys, "translate", model, "--engine", engine, "--scores", stdin=LINES)
        for engine in ("auto", "native", "torch")
    }
    assert {done.code for done in outputs.values()} == {0}
    assert outputs["auto"].out == outputs["native"].out
    rows = [[line.split("\t") for line in outputs[engine].out.splitlines()] for engine in ("native", "torch")]
    for ours, theirs in zip(*rows, strict=True):
        assert ours[1] == theirs[1]
        assert float(ours[0]) == pytest.approx(float(theirs[0]), abs=1e-3)
    refused = call(capsys, "translate", model, "--engine", "torch", "--precision", "int8", stdin=LINES)
    assert (refused.code, refused.out) == (2, "")
    assert "int8, which needs the native engine" in refused.err
    assert call(capsys, "translate", model, "--threads", "0", stdin=LINES).code == 2
    told = call(capsys, "info", "--system").out
    assert f"decoding engine: native, {instructions()}\n" in told
    assert f"training on the CPU: fused, {best_instructions()}\n" in told


@native
def test_the_native_engine_needs_neither_torch_nor_numpy_once_it_has_packed(model: str) -> None:
    assert process("translate", model, stdin=LINES).code == 0
    program = (
        "import io, sys; from regard.cli import main; sys.stdin = io.TextIOWrapper(io.BytesIO(b'a dog sees me 5.'))\n"
        f"assert main(['translate', {model!r}]) == 0; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_without_the_library_pytorch_decodes_and_says_why(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.decoding.native.compiled_library.library", lambda: "it was not built: no compiler")
    assert call(capsys, "translate", model, stdin=LINES).code == 0
    refused = call(capsys, "translate", model, "--engine", "native", stdin=LINES)
    assert refused.code == 2
    assert "it was not built: no compiler" in refused.err
    assert "PyTorch; the native engine is not available: it was not built" in call(capsys, "info", "--system").out
