"""The verbs import and export."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli import import_export as exchange
from regard.cli.argument_parser import Parser
from regard.errors import InputError, ModelError
from tests.interop.published import save_bert, save_gpt2
from tests.interop.test_llama2c import save as save_llama2c


def run(*arguments: str | Path) -> int:
    parser = Parser()
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


def test_a_vocabulary_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder or a file of it, in place of what the model's own folder lacks."""
    source, other = save_gpt2(tmp_path / "theirs"), tmp_path / "vocabulary"
    assert run("import", source, "-o", tmp_path / "whole") == 0
    other.mkdir()
    for name in ("vocab.json", "merges.txt"):
        (source / name).rename(other / name)
    for number, place in enumerate((other, other / "vocab.json", other / "merges.txt")):
        assert run("import", source, "--tokenizer", place, "-o", tmp_path / f"{number}") == 0
        assert (tmp_path / f"{number}" / "tokenizer.json").read_text() == (
            tmp_path / "whole" / "tokenizer.json"
        ).read_text()
    capsys.readouterr()


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "theirs")
    other = save_bert(tmp_path / "other")
    with pytest.raises(ModelError, match=r"other: has \d+ pieces, but the model's vocabulary has 330"):
        run("import", source, "--tokenizer", other, "-o", tmp_path / "ours")
    (source / "model.safetensors").write_text("")  # not read before
    for place, told in (("nowhere", "no such file or folder"),):
        with pytest.raises(InputError, match=told):
            run("import", source, "--tokenizer", tmp_path / place, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
