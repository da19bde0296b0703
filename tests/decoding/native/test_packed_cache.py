"""Packed weights are kept in the model folder, and packed again when they do not belong to it."""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.decoding.model_loading import load
from regard.decoding.native import packed_cache as loading
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.native.packed_cache import open_packed, packed_path, read_stored
from regard.errors import ModelError
from regard.interop.int8_folder import quantize_folder
from regard.model_folder import NATIVE, TOKENIZER, WEIGHTS, read_settings
from regard.model_manifest import sha256, write_manifest
from regard.settings import DecodingSettings
from regard.weights import read_tensors, write_tensors
from tests.decoding.native.models import FIRST, SPECIALS


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    """Copies a model folder, so that it can be changed."""
    return Path(shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns(NATIVE)))


def files(model: Path) -> dict[str, tuple[int, int, int]]:
    """Returns the inode, size and time of each packed file by name."""
    kept = {path.name: path.stat() for path in (model / NATIVE).iterdir()}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in kept.items()}


def said(model: Path, precision: str = "float32") -> object:
    """Searches with the packed model, which is packed first if necessary."""
    settings = read_settings(model)
    engine = NativeSearch(open_packed(model, settings, precision), SPECIALS, longest=settings.model.max_length)
    return engine.search([[FIRST + 60, FIRST + 70]], [10], DecodingSettings(beam=2))


def change(model: Path) -> None:
    tensors, _ = read_tensors(model / WEIGHTS)
    write_tensors(model / WEIGHTS, {name: tensor + torch.randn(tensor.shape) for name, tensor in tensors.items()})


def test_packed_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, kept = said(model), files(model)
    assert [name.split("-")[0] for name in kept] == ["float32"]
    monkeypatch.setattr(loading, "_pack", None)  # is not asked again
    assert said(model) == first
    assert files(model) == kept


def test_each_precision_has_its_file(model: Path) -> None:
    said(model), said(model, "int8")
    assert sorted(name.split("-")[0] for name in files(model)) == ["float32", "int8"]


@pytest.mark.parametrize("what", ["weights", "settings", "vocabulary"])
def test_packed_anew_where_the_model_is_another(model: Path, what: str) -> None:
    before, kept = said(model), files(model)
    if what == "weights":
        change(model)
    elif what == "settings":
        toml = model / "model.toml"
        text = toml.read_text(encoding="utf-8")
        assert "scale_embedding = true" in text
        toml.write_text(text.replace("scale_embedding = true", "scale_embedding = false"), encoding="utf-8")
    else:
        (model / TOKENIZER).write_bytes((model / TOKENIZER).read_bytes() + b"\n")
    after = said(model)
    assert (after == before) == (what == "vocabulary")
    assert len(files(model)) == 1  # the old one is gone
    assert files(model).keys() != kept.keys()


def test_other_weights_of_the_same_size_and_time_are_packed(model: Path) -> None:
    """Such files come from archives without times; only their content differs."""
    weights = model / WEIGHTS
    status, before, kept = weights.stat(), said(model), files(model)
    change(model)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert weights.stat().st_size == status.st_size
    assert said(model) != before
    assert files(model).keys() != kept.keys()


def test_the_manifest_saves_hashing_the_weights(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def watched(path: Path) -> str:
        hashed.append(path.name)
        return sha256(path)

    monkeypatch.setattr(loading, "sha256", watched)
    first = packed_path(model, read_settings(model), "int8")
    assert hashed == [WEIGHTS, TOKENIZER]
    write_manifest(model)
    assert packed_path(model, read_settings(model), "int8") == first
    assert len(hashed) == 2


def test_weights_that_are_replaced_while_they_are_packed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed file of the new weights must not have the name of the old ones."""
    pack = loading._pack

    def pack_and_change(*arguments: Any) -> None:
        monkeypatch.setattr(loading, "_pack", pack)
        pack(*arguments)
        change(model)

    monkeypatch.setattr(loading, "_pack", pack_and_change)
    assert said(model) == said(model)
    assert len(files(model)) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "one bit"])
def test_packed_anew_where_the_file_is_damaged(model: Path, damage: str) -> None:
    before = said(model)
    (path,) = (model / NATIVE).iterdir()
    content = path.read_bytes()
    bit = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    damaged = {"empty": b"", "cut": content[:-1], "other": b"regard-0" + content[8:], "one bit": bit}
    path.write_bytes(damaged[damage])
    assert said(model) == before
    assert path.read_bytes() == content


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_running_process_does_not_depend_on_the_file(model: Path, precision: str) -> None:
    """A mapped file that is cut short would end the process with SIGBUS."""
    said(model, precision)
    (path,) = (model / NATIVE).iterdir()
    program = """
import sys
import regard
translator = regard.load(sys.argv[1], engine="native", precision=sys.argv[2])
for line in sys.stdin:
    print(translator.translate([line.strip()], alternatives=2), flush=True)
"""
    command = [sys.executable, "-c", program, str(model), precision]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answered = process.stdin, process.stdout

        def translate() -> str:
            asked.write("The old woman sings.\n")
            asked.flush()
            return answered.readline()

        first, content = translate(), path.read_bytes()
        assert "Translation(" in first
        os.truncate(path, 0)
        assert translate() == first
        path.write_bytes(os.urandom(len(content)))
        assert translate() == first
        path.unlink()
        assert translate() == first
        asked.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("why", ["it is not allowed", "the disk is full"])
def test_a_folder_that_cannot_be_written_to(model: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    expected = said(model)
    shutil.rmtree(model / NATIVE)
    if why == "the disk is full":

        def sync(_file: int) -> None:
            raise OSError(errno.ENOSPC, "no room")

        monkeypatch.setattr(os, "fsync", sync)
    else:
        (model / NATIVE).write_text("a file where the folder would be", encoding="utf-8")  # which stops root too
    assert said(model) == expected
    assert (model / NATIVE).is_file() or not files(model)


def test_several_at_once(model: Path) -> None:
    """Threads open one folder for the first time at once."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(said, [model] * 8))
    assert found == [found[0]] * 8
    assert len(files(model)) == 1


def test_damaged_weights_are_refused_and_leave_nothing(model: Path) -> None:
    (model / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:1000])
    with pytest.raises(ModelError, match="damaged or unreadable"):
        said(model)
    assert not (model / NATIVE).exists() or not files(model)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("engine", ["native", "torch"])
def test_weights_that_are_not_finite_are_refused(model: Path, value: float, engine: str) -> None:
    """This holds for both engines, also where good weights were packed before."""
    said(model)
    tensors, _ = read_tensors(model / WEIGHTS)
    tensors["decoder.layers.1.feed_forward.fall.weight"][3, 5] = value
    write_tensors(model / WEIGHTS, tensors)
    with pytest.raises(ModelError, match=r"decoder\.layers\.1\.feed_forward\.fall\.weight contains .* not finite"):
        load(model, engine=engine)


@pytest.mark.parametrize("way", ["missing", "more", "shape"])
def test_weights_that_are_not_the_models_are_refused(model: Path, way: str) -> None:
    tensors, _ = read_tensors(model / WEIGHTS)
    name = "decoder.layers.0.self_attention.key.weight"
    match way:
        case "missing":
            del tensors[name]
        case "more":
            tensors["surplus"] = tensors[name].clone()
        case _:
            tensors[name] = tensors[name][:, :-1]
    write_tensors(model / WEIGHTS, tensors)
    with pytest.raises(ModelError, match="surplus" if way == "more" else name):
        said(model)


def test_what_is_stored_in_int8_is_packed_as_it_is(model: Path, tmp_path: Path) -> None:
    """`regard quantize` first, or int8 when it is packed: the same integers."""
    assert read_stored(model).precision == "float32"
    quantize_folder(model, tmp_path / "int8")
    assert read_stored(tmp_path / "int8").precision == "int8"
    assert said(tmp_path / "int8", "int8") == said(model, "int8")
