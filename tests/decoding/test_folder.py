"""A model folder: what is damaged is named, and what is written is whole or not there."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.atomic_files import write_atomically, write_text
from regard.decoding.model_loading import load
from regard.errors import ModelError
from regard.model_folder import SETTINGS, TOKENIZER, TRAINING, WEIGHTS
from regard.weights import parameters, read_folder, read_tensors, write_tensors

NAME = "encoder.layers.0.self_attention.query.weight"
FULL = "the disk is full: free some space and try again"


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path, "cpu")
    return str(caught.value)


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / WEIGHTS)
    change(tensors)
    save_file(tensors, path / WEIGHTS)


# Reading


def test_a_folder_is_read_as_it_was_written(folder: Path) -> None:
    first, second = read_folder(folder), read_folder(folder)
    assert first.settings == second.settings
    assert first.vocabularies.to_json() == second.vocabularies.to_json()
    tensors, metadata = read_tensors(folder / WEIGHTS)
    assert metadata == {}
    assert tensors.keys() == parameters(first.model).keys()
    assert all(torch.equal(parameters(first.model)[name], tensor) for name, tensor in tensors.items())


def test_there_is_no_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == f"{tmp_path / 'nowhere'}: no such folder"


def test_the_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert refusal(tmp_path / "file") == f"{tmp_path / 'file'}: a file, not a model folder: a text file, not a model"


def test_the_settings_are_missing(copy: Path) -> None:
    (copy / SETTINGS).unlink()
    assert refusal(copy) == (
        f"{copy}: not a Regard model (it has no model.toml): part of a model folder: copy the whole folder"
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"[model]", b"[model", "not valid TOML"),
        (b"[model]", b"[model]\nwidht = 3", "unknown setting model.widht; did you mean model.width?"),
        (b"heads = 2", b"heads = 3", "model.width 16 is not divisible by model.heads 3"),
        (b"heads = 2", b"heads = 'two'", "model.heads must be a whole number"),
        (b"[model]", b"# \xff\n[model]", "not valid TOML"),
    ],
)
def test_the_settings_are_damaged(copy: Path, old: bytes, new: bytes, says: str) -> None:
    text = (copy / SETTINGS).read_bytes()
    assert old in text
    (copy / SETTINGS).write_bytes(text.replace(old, new, 1))
    message = refusal(copy)
    assert message.startswith(f"{copy}: damaged, or written by another version of Regard: ")
    assert says in message


def test_the_weights_are_missing(copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    assert refusal(copy) == f"{copy}: has no weights.safetensors: copy the whole folder again"
    (copy / TRAINING).mkdir()
    assert refusal(copy).startswith(f"{copy}: has no weights.safetensors yet: ")
    assert f"regard train --resume {copy}" in refusal(copy)


@pytest.mark.parametrize("size", [0, 4, 8, 100, -1])
def test_the_weights_are_cut_off(copy: Path, size: int) -> None:
    content = (copy / WEIGHTS).read_bytes()
    (copy / WEIGHTS).write_bytes(content[:size])
    assert refusal(copy).startswith(f"{copy / WEIGHTS}: damaged or unreadable (")


def test_the_weights_are_a_folder(copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    (copy / WEIGHTS).mkdir()
    assert refusal(copy).startswith(f"{copy}: has no weights.safetensors")


def test_a_pickle_in_the_place_of_the_weights_is_not_opened(copy: Path, tmp_path: Path) -> None:
    trace = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> tuple[Callable[[Path], object], tuple[Path]]:
            return Path.touch, (trace,)

    (copy / WEIGHTS).write_bytes(pickle.dumps(Trap()))
    assert refusal(copy).startswith(f"{copy / WEIGHTS}: damaged or unreadable (")
    torch.save({"weight": torch.ones(2)}, copy / WEIGHTS)
    assert refusal(copy).startswith(f"{copy / WEIGHTS}: damaged or unreadable (")
    assert not trace.exists()
    pickle.loads(pickle.dumps(Trap()))  # noqa: S301 (the trap would have worked)
    assert trace.exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop(NAME), f"the tensor {NAME} is missing"),
        (lambda tensors: tensors.clear(), "the tensor source_embedding.tokens.weight is missing"),
        (
            lambda tensors: tensors.update({"spare.weight": torch.ones(2)}),
            "the tensor spare.weight does not belong to this model",
        ),
        (
            lambda tensors: tensors.update({NAME: torch.ones(8, 16)}),
            f"the tensor {NAME} has the shape (8, 16) instead of (16, 16)",
        ),
        (
            lambda tensors: tensors.update({NAME: torch.ones(256)}),
            f"the tensor {NAME} has the shape (256,) instead of (16, 16)",
        ),
    ],
    ids=["missing", "all missing", "unexpected", "misshapen", "flat"],
)
def test_the_weights_are_those_of_another_model(
    copy: Path, change: Callable[[dict[str, torch.Tensor]], object], says: str
) -> None:
    change_weights(copy, change)
    assert refusal(copy) == f"{copy / WEIGHTS}: {says}"


def test_the_tokenizer_is_missing(copy: Path) -> None:
    (copy / TOKENIZER).unlink()
    assert refusal(copy) == f"{copy / TOKENIZER}: cannot be read (No such file or directory)"


def foreign_tokenizer() -> str:
    from tokenizers import Tokenizer, models

    return Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[])).to_str()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "damaged: not JSON"),
        ("{", "damaged: not JSON"),
        ("\xff", "damaged: not JSON"),
        ("[]", "damaged tokenizer: "),
        ("{}", "damaged tokenizer: "),
        ('{"source": {}, "target": {}}', "damaged tokenizer: "),
        (foreign_tokenizer(), "written by another program"),
    ],
)
def test_the_tokenizer_is_damaged_or_foreign(copy: Path, content: str, says: str) -> None:
    (copy / TOKENIZER).write_bytes(content.encode("latin-1"))
    assert refusal(copy).startswith(f"{copy / TOKENIZER}: {says}")


def test_the_tokenizer_is_that_of_another_model(copy: Path) -> None:
    content = json.loads((copy / TOKENIZER).read_text(encoding="utf-8"))
    longest = max(content["model"]["vocab"].values())
    content["model"]["vocab"]["zzz"] = longest + 1
    (copy / TOKENIZER).write_text(json.dumps(content), encoding="utf-8")
    assert f"{copy / WEIGHTS}: the tensor source_embedding.tokens.weight has the shape" in refusal(copy)


# Writing


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def full(temporary: Path) -> None:
    temporary.write_bytes(b"half of it")
    raise OSError(errno.ENOSPC, "No space left on device")


def failing(temporary: Path) -> None:
    temporary.write_bytes(b"half of it")
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(("write", "why"), [(full, FULL), (failing, "Permission denied")])
@pytest.mark.parametrize("before", [{}, {"file": b"old"}])
def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, write: Callable[[Path], None], why: str, before: dict[str, bytes]
) -> None:
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        write_atomically(tmp_path / "file", write)
    assert str(caught.value) == f"{tmp_path / 'file'}: cannot be written ({why}); the previous content is unchanged"
    assert files(tmp_path) == before


@pytest.mark.parametrize("error", [ModelError, KeyboardInterrupt])
def test_a_write_that_is_broken_off_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    def write(temporary: Path) -> None:
        temporary.write_bytes(b"half of it")
        raise error

    with pytest.raises(error):
        write_atomically(tmp_path / "file", write)
    assert files(tmp_path) == {}


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)


def test_a_write_that_succeeds_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_text(path, "ä\r\n\u2028")
    assert files(tmp_path) == {"new/folder/file": "ä\r\n\u2028".encode()}
    write_text(path, "second")
    assert files(tmp_path) == {"new/folder/file": b"second"}


def test_a_file_stands_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(ModelError, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="is a folder, not a file"):
        write_text(tmp_path / "folder", "text")
    assert files(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_are_as_public_as_the_umask_says(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "text", "text")
        write_tensors(tmp_path / "tensors", {"a": torch.ones(2)}, {"key": "value"})
        assert os.umask(mask) == mask  # looking at it has not changed it
    finally:
        os.umask(before)
    for name in ("text", "tensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~mask
    tensors, metadata = read_tensors(tmp_path / "tensors")
    assert torch.equal(tensors["a"], torch.ones(2))
    assert metadata == {"key": "value"}


LIMITED = """
import resource, sys, torch
from pathlib import Path
from regard.errors import ModelError
from regard.atomic_files import write_text
from regard.weights import write_tensors
sys.dont_write_bytecode = True  # Python would leave cut-off files that the next process cannot read
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for write in (lambda: write_text(Path(sys.argv[1]), "x" * 20_000),
              lambda: write_tensors(Path(sys.argv[1]), {"a": torch.ones(20_000)})):
    try:
        write()
    except ModelError as error:
        print(error)
"""


def test_a_real_limit_on_files_changes_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("cannot be written (" in line and "File too large" in line for line in lines)
    assert files(tmp_path) == {"file": b"old"}


def test_a_disk_that_is_really_full_changes_nothing_either(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    try:
        write_text(disk / "file", "old")
        for write in (
            lambda: write_text(disk / "file", "x" * 100_000),
            lambda: write_tensors(disk / "file", {"a": torch.ones(100_000)}),
        ):
            with pytest.raises(ModelError) as caught:
                write()
            assert FULL in str(caught.value)
            assert files(disk) == {"file": b"old"}
        write_text(disk / "file", "new")
        assert files(disk) == {"file": b"new"}
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
