"""regard shortlist, and --shortlist of the verbs that translate."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.decoding.native.compiled_library import reason_unavailable
from regard.decoding.token_shortlist import Shortlist
from regard.errors import InputError, ModelError
from regard.model_folder import SHORTLIST
from regard.model_manifest import write_manifest
from tests.cli.conftest import write_corpus
from tests.cli.running import call

LINES = b"a dog sees me 5.\nthe cat likes us 7.\n"
native = pytest.mark.skipif(reason_unavailable() is not None, reason="no C++ compiler was there")


@pytest.fixture
def own(model: str, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(model, tmp_path / "own"))


@native
def test_both_engines_write_what_is_listed_and_nothing_else(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    done = call(capsys, "shortlist", str(own), "--each", "2", "--common", "3")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{own / SHORTLIST}: learnt from ")
    assert "of the tokens in the dev set" in done.out
    outputs = [
        call(capsys, "translate", str(own), "--shortlist", "--engine", engine, stdin=LINES).out
        for engine in ("native", "torch")
    ]
    assert outputs[0] == outputs[1]
    shortlist = Shortlist.load(own)
    translator = regard.load_as(regard.Translator, own, shortlist=True)
    for text in LINES.decode().splitlines():
        allowed = set(translator.target.pieces(shortlist.allowed_tokens(translator.source.encode(text).ids)))
        assert allowed.issuperset(translator.translate([text])[0].tokens)
        assert len(allowed) < 60 < translator.target.size
    without = call(capsys, "translate", str(own), stdin=LINES).out
    assert without == call(capsys, "translate", str(own), "--engine", "torch", stdin=LINES).out


def test_it_is_learnt_from_files_too_and_copied_with_the_model(
    capsys: pytest.CaptureFixture[str], own: Path, tmp_path: Path
) -> None:
    call(capsys, "shortlist", str(own))
    trained = Shortlist.load(own)
    shutil.rmtree(own / "training")
    (own / SHORTLIST).unlink()
    refused = call(capsys, "shortlist", str(own))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "specify the files" in refused.err
    done = call(capsys, "shortlist", str(own), *write_corpus(tmp_path, pairs=300))
    assert (done.code, "of the tokens in the pairs themselves" in done.out) == (0, True)
    found = Shortlist.load(own)
    assert len(set(found.tokens) & set(trained.tokens)) > len(set(trained.tokens)) // 2
    assert call(capsys, "quantize", str(own), "-o", str(tmp_path / "int8")).code == 0
    assert Shortlist.load(tmp_path / "int8") == found
    files = write_corpus(tmp_path, "test", 10, seed=2)
    scored = call(capsys, "evaluate", str(own), *files, "--shortlist", "--json", "--resamples", "0")
    assert json.loads(scored.out)["scores"]


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_what_is_wrong_is_told_in_a_line(capsys: pytest.CaptureFixture[str], own: Path, engine: str) -> None:
    def told() -> str:
        done = call(capsys, "translate", str(own), "--shortlist", "--engine", engine, stdin=LINES)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        return done.err

    assert f"regard shortlist {own}" in told()
    call(capsys, "shortlist", str(own))
    content = (own / SHORTLIST).read_bytes()
    for damaged in (b"", content[:4], content[:60], content[:-8], b"\xff" * 100, content.replace(b"I64", b"F64")):
        (own / SHORTLIST).write_bytes(damaged)
        assert "damaged" in told()
    (own / SHORTLIST).write_bytes(content)
    tokenizer = (own / "tokenizer.json").read_text(encoding="utf-8")
    (own / "tokenizer.json").write_text(tokenizer + "\n", encoding="utf-8")
    write_manifest(own)
    assert "another vocabulary" in told()


def test_only_what_translates_has_one(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    settings = (own / "model.toml").read_text(encoding="utf-8")
    (own / "model.toml").write_text(settings.replace('task = "translate"', 'task = "write"'), encoding="utf-8")
    assert "only translators have shortlists" in call(capsys, "shortlist", str(own)).err
    with pytest.raises(InputError, match="only translators have shortlists"):
        regard.load(own, shortlist=True)


def test_numbers_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    assert call(capsys, "shortlist", str(own), "--each", "0").code == 2
    with pytest.raises(ModelError, match="has no shortlist"):
        Shortlist.load(own)


@native
def test_opening_one_takes_neither_torch_nor_numpy(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    call(capsys, "shortlist", str(own))
    call(capsys, "translate", str(own), "--shortlist", stdin=LINES)  # packs the weights
    program = (
        "import regard, sys\n"
        "translator = regard.load(sys.argv[1], engine='native', shortlist=True)\n"
        "assert translator('a dog sees me 5.')\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(own)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
