"""The folder of an export: it is complete or not written, and never replaces anything but an earlier export."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from regard.errors import InputError, ModelError
from regard.interop import ctranslate2, onnx
from tests.interop.toys import settings_of, write_model

each_program = pytest.mark.parametrize("program", [ctranslate2, onnx], ids=["ctranslate2", "onnx"])


@each_program
def test_other_files_in_the_output_are_left_alone(tmp_path: Path, program: ModuleType) -> None:
    folder, output = write_model(tmp_path / "model", settings_of("write")), tmp_path / "out"
    program.export_model(folder, output)
    with pytest.raises(ModelError, match="out: is not empty; name another folder"):
        program.export_model(folder, output)
    program.export_model(folder, output, overwrite=True)
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelError, match=r"out: holds thesis\.txt, which is not part of an export"):
        program.export_model(folder, output, overwrite=True)
    assert (output / "thesis.txt").read_text() == "years of work"
    for place in (folder, tmp_path):
        with pytest.raises(ModelError, match="is or holds the model itself"):
            program.export_model(folder, place, overwrite=True)
    with pytest.raises(ModelError, match=r"model\.toml: is a file"):
        program.export_model(folder, folder / "model.toml", overwrite=True)
    (tmp_path / "empty").mkdir()
    program.export_model(folder, tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "model", "out"]


@each_program
@pytest.mark.parametrize(
    ("failure", "expected", "message"),
    [
        (OSError(28, "No space left on device"), ModelError, r"cannot be written \(the disk is full"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_failed_export_leaves_no_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: ModuleType,
    failure: BaseException,
    expected: type[BaseException],
    message: str | None,
) -> None:
    folder, output = write_model(tmp_path / "model", settings_of("write")), tmp_path / "deep" / "out"
    program.export_model(folder, output)
    before = {path.name: path.read_bytes() for path in output.iterdir()}

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(program, "write_companions", fail)
    for place in (output, tmp_path / "deep" / "new"):
        with pytest.raises(expected, match=message):
            program.export_model(folder, place, overwrite=True)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@each_program
def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: ModuleType) -> None:
    name = program.__name__.rpartition(".")[2]
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"pip install 'regard\[{name}\]'"):
        program.export_model(tmp_path / "model", tmp_path / "out")
