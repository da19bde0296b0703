"""The verbs import and export."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from regard.cli import exchange
from regard.errors import InputError

from .published import save_gpt2
from .test_llama2c import save as save_llama2c


def run(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    exchange.add(parser.add_subparsers())
    known = parser.parse_args([str(argument) for argument in arguments])
    code: int = known.run(known)
    return code


def test_a_folder_goes_in_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save_gpt2(tmp_path / "theirs")
    capsys.readouterr()
    assert run("import", source, "-o", tmp_path / "ours") == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'ours'}\n"
    assert (tmp_path / "ours" / "card.md").read_text().startswith("# ours\n\nImported with Regard")
    assert run("export", tmp_path / "ours", "--to", "huggingface", "-o", tmp_path / "back") == 0
    assert run("import", tmp_path / "back", "-o", tmp_path / "ours", "--overwrite") == 0


def test_a_file_of_llama2c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer, _ = save_llama2c(tmp_path)
    assert run("import", model, "--tokenizer", tokenizer, "-o", tmp_path / "ours") == 0
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path / 'ours'}\n")


def test_a_folder_has_its_own_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder has its vocabulary in it"):
        run("import", tmp_path, "--tokenizer", tmp_path / "x", "-o", tmp_path / "y")
