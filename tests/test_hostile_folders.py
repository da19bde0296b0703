"""Model folders that are damaged, absurd or hostile end in one line, before they cost time or memory."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli import main
from regard.cli.info import describe_model
from regard.decoding.confidence import Confidence
from regard.decoding.token_shortlist import Shortlist
from regard.errors import ModelError
from regard.model_folder import (
    CANARY,
    CONFIDENCE,
    LOG,
    MANIFEST,
    MEMORY,
    SETTINGS,
    SHORTLIST,
    TOKENIZER,
    WEIGHTS,
    last_event,
)
from regard.model_manifest import find_changed, read_manifest, sha256, write_listed, write_manifest
from regard.serving.served_models import read_examples
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials, Vocabularies
from regard.weights import read_folder, write_weights
from tests.interop.toys import settings_of, write_model

SECONDS, MEGABYTES = 2, 200

Damage = Callable[[Path], object]


def setting(name: str, value: int) -> Damage:
    def change(folder: Path) -> None:
        table, key = name.split(".")
        text = (folder / SETTINGS).read_text()
        head, _, tail = text.partition(f"[{table}]\n")
        lines = [line for line in tail.split("\n") if not line.startswith(f"{key} =")]
        (folder / SETTINGS).write_text(f"{head}[{table}]\n{key} = {value}\n" + "\n".join(lines))

    return change


def content(name: str, text: str) -> Damage:
    return lambda folder: (folder / name).write_text(text)


def replaced_by_link(name: str, target: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def moved_out(name: str) -> Damage:
    def change(folder: Path) -> None:
        outside = folder.with_name(f"{folder.name}.{name}")
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return change


def device(name: str) -> Damage:
    return lambda folder: (folder / name).symlink_to("/dev/zero")


def header(tensors: dict[str, Any], size: int) -> Damage:
    """Replaces the weights by a file with this header, and zeros that need no space on the disk."""

    def change(folder: Path) -> None:
        text = json.dumps(tensors).encode()
        (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(folder / WEIGHTS, 8 + len(text) + size)

    return change


def pipe(name: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def grown(name: str, size: int) -> Damage:
    return lambda folder: os.truncate(folder / name, size)


def tokenizer(edit: Callable[[dict[str, Any]], object]) -> Damage:
    """A tokenizer as imported models have it, changed."""

    def change(folder: Path) -> None:
        own = Vocabularies.load(folder / TOKENIZER).source
        whole = json.loads(ImportedTokenizer(own.model, Specials(), own.size).to_json())
        edit(whole)
        (folder / TOKENIZER).write_text(json.dumps(whole))

    return change


def normalizers(*rules: dict[str, Any]) -> Damage:
    rule = {"type": "Sequence", "normalizers": list(rules)}
    return tokenizer(lambda whole: whole["tokenizer"].update(normalizer=rule))


def replace_rule(pattern: dict[str, str], text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": text}


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def change(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        edit(tensors)
        save_file(tensors, folder / WEIGHTS)

    return change


def flip_bit(folder: Path) -> None:
    write_manifest(folder)
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-3] ^= 1
    (folder / WEIGHTS).write_bytes(data)


def change_tokenizer(folder: Path) -> None:
    write_manifest(folder)
    (folder / TOKENIZER).write_text((folder / TOKENIZER).read_text() + "\n")


QUERY = "encoder.layers.0.self_attention.query.weight"
CASES: dict[str, tuple[Damage, str]] = {
    "width": (setting("model.width", 10**9), "model.width must be at most 1,000,000"),
    "layers": (setting("model.encoder_layers", 10**8), "model.encoder_layers must be at most 500"),
    "beam": (setting("decoding.beam", 100_000), "decoding.beam must be at most 10,000"),
    "possible width": (setting("model.width", 524_288), "instead of"),
    "possible layers": (setting("model.encoder_layers", 500), "is missing"),
    "positions": (setting("model.hidden", 10**6), "instead of"),
    "deep TOML": (content(SETTINGS, "x = " + "[" * 100_000), "nested too deeply"),
    "dotted TOML": (content(SETTINGS, ".".join(["a"] * 100_000) + " = 1"), "more than 64 dots"),
    "dotted TOML in quotes": (content(SETTINGS, 'x = """\n""", ' + ".".join(["a"] * 9_000) + ' = "x"'), "64 dots"),
    "many keys": (content(SETTINGS, "\n".join(f"k{i} = 1" for i in range(200_000))), "too large"),
    "settings from a device": (replaced_by_link(SETTINGS, "/dev/zero"), "not a Regard model"),
    "settings elsewhere": (moved_out(SETTINGS), "outside its folder"),
    "tokenizer from a device": (replaced_by_link(TOKENIZER, "/dev/zero"), "not a regular file"),
    "tokenizer from a pipe": (pipe(TOKENIZER), "not a regular file"),
    "tokenizer elsewhere": (moved_out(TOKENIZER), "outside its folder"),
    "large tokenizer": (grown(TOKENIZER, 2**32), "such a file may have at most"),
    "deep JSON": (content(TOKENIZER, "[" * 200_000), "not JSON"),
    "growing rules": (
        normalizers(*(replace_rule({"String": a}, b * 1000) for a, b in ("ab", "bc", "cd", "de"))),
        "make a text more than 1,000 times longer",
    ),
    "exponential rule": (normalizers(replace_rule({"Regex": "(a+)+$"}, "")), "can take exponential time"),
    "piece with a large id": (
        tokenizer(lambda whole: whole["tokenizer"]["model"]["vocab"].update({"the": 2**31})),
        "a piece has an id above 10,000,000",
    ),
    "long words": (
        tokenizer(lambda whole: whole["tokenizer"]["model"].update(max_input_chars_per_word=10**9)),
        "which takes quadratic time",
    ),
    "special id that is no number": (tokenizer(lambda whole: whole["specials"].update(mask={})), "outside the vocabul"),
    "infinite size": (tokenizer(lambda whole: whole.update(size=10**12)), "a vocabulary of 1000000000000 tokens"),
    "half a character": (content(TOKENIZER, '{"a": "\\ud800"}'), "not JSON"),
    "panic of tokenizers": (
        tokenizer(lambda whole: whole["tokenizer"]["model"].update(continuing_subword_prefix="x" * 50)),
        "damaged tokenizer",
    ),
    "padding": (
        tokenizer(lambda whole: whole["tokenizer"].update(padding={"strategy": {"Fixed": 10**9}})),
        "pads texts to 1000000000 tokens",
    ),
    "special ids": (tokenizer(lambda whole: whole["specials"].update(end=10**9)), "outside the vocabulary"),
    "weights from a device": (replaced_by_link(WEIGHTS, "/dev/zero"), "has no weights.safetensors"),
    "weights elsewhere": (moved_out(WEIGHTS), "outside its folder"),
    "long header": (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 7 + b"\0{}"), "damaged or unreadable"),
    "a terabyte of zeros": (grown(WEIGHTS, 2**40), "its header describes another size"),
    "a terabyte that is described": (
        header({"a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}, 2**40),
        "is missing",
    ),
    "infinite shape": (header({"a": {"dtype": "F32", "shape": [math.inf], "data_offsets": [0, 4]}}, 4), "damaged"),
    "confidence from a device": (device(CONFIDENCE), "not a regular file"),
    "infinite confidence": (content(CONFIDENCE, '{"slope": 1, "intercept": 1, "pairs": 1e999}'), "damaged"),
    "deep confidence": (content(CONFIDENCE, "[" * 90_000), "damaged"),
    "cut weights": (grown(WEIGHTS, 20_000), "damaged or unreadable"),
    "NaN": (
        weights(lambda tensors: tensors[QUERY].view(-1)[3:4].fill_(torch.nan)),
        f"{QUERY} contains values that are not",
    ),
    "infinity": (weights(lambda tensors: tensors[QUERY].view(-1)[3:4].fill_(-torch.inf)), "not finite"),
    "misshapen": (weights(lambda tensors: tensors.update({QUERY: torch.zeros(3, 3)})), f"{QUERY} has the shape (3, 3)"),
    "flipped bit": (flip_bit, "is damaged or was changed"),
    "changed tokenizer": (change_tokenizer, "is damaged or was changed"),
    "damaged manifest": (content(MANIFEST, "[]"), "damaged: copy the whole folder again"),
    "large manifest": (content(MANIFEST, " " * 200_000), "such a file may have at most"),
}


def packed(*parts: tuple[bytes, int]) -> Damage:
    """Writes a translation memory that expands to these parts, each repeated as often as given."""

    def change(folder: Path) -> None:
        with gzip.GzipFile(folder / MEMORY, "wb", compresslevel=1) as file:
            for part, times in parts:
                file.write(part * times)

    return change


ENTRY = b'{"source": "a dog", "target": "ein Hund"}\n'
MEMORIES: dict[str, tuple[Damage, str]] = {
    "a line without an end": (packed((bytes(100_000_000), 3)), "more than 1,000,000 bytes in a line"),
    "many entries": (packed((b"{}\n", 40_000_000)), "more than 2,000,000 entries"),
    "many bytes": (packed((b" " * 900_000 + b"\n", 250)), "more than 200,000,000 bytes when it is unpacked"),
    "a first entry, then many": (packed((ENTRY, 1), (b"\n", 100_000_000)), "more than 2,000,000 entries"),
    "deep JSON": (packed((b"[" * 900_000 + b"\n", 1)), "cannot be read as JSON"),
    "a long number": (packed((b'{"source": ' + b"9" * 900_000 + b"}\n", 1)), "cannot be read as JSON"),
    "half a character": (packed((ENTRY.replace(b"dog", b"\\ud800"), 1)), ":1: a lone surrogate"),
    "no UTF-8": (packed((ENTRY.replace(b"dog", b"\xff"), 1)), ":1: not UTF-8"),
    "from a device": (device(MEMORY), "not a regular file"),
    "from a pipe": (lambda folder: os.mkfifo(folder / MEMORY), "not a regular file"),
    "elsewhere": (lambda folder: (packed((ENTRY, 1))(folder), moved_out(MEMORY)(folder)), "outside its folder"),
    "a terabyte": (lambda folder: (packed((ENTRY, 1))(folder), grown(MEMORY, 2**40)(folder)), "may have at most"),
    "zeros behind it": (
        lambda folder: (packed((ENTRY, 1))(folder), grown(MEMORY, 10**8)(folder)),
        "other data follows",
    ),
    "a second member": (lambda folder: (packed((ENTRY, 1))(folder), repeat(folder / MEMORY)), "other data follows"),
    "cut off": (lambda folder: (packed((ENTRY, 9))(folder), grown(MEMORY, 30)(folder)), "cut off"),
    "not packed": (content(MEMORY, ENTRY.decode()), "cannot be read"),
}


def repeat(path: Path) -> int:
    return path.write_bytes(path.read_bytes() * 2)


MEASURE = """
import json, resource, sys, time
from pathlib import Path
import torch, regard, regard.weights, regard.decoding.pytorch_engine, regard.decoding.native.packed_cache
from regard.faithful.translation_memory import open_recorded
def load(folder, way):
    return open_recorded(Path(folder)) if way == "memory" else regard.load(folder, engine=way)
load(sys.argv[1], sys.argv[2])
for folder in sys.argv[3:]:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        load(folder, sys.argv[2])
        message = ""
    except regard.RegardError as error:
        message = str(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([message, time.process_time() - started, grown / 1024]))
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "good", settings_of("translate"))


@pytest.mark.parametrize("way", ["auto", "torch", "memory"])
def test_each_hostile_folder_is_refused_in_one_line_and_costs_little(good: Path, tmp_path: Path, way: str) -> None:
    cases = MEMORIES if way == "memory" else CASES
    undamaged = copytree(good, tmp_path / "undamaged")
    packed((ENTRY, 9))(undamaged)
    for name, (damage, _) in cases.items():
        copytree(good, tmp_path / name)
        damage(tmp_path / name)
        if way == "memory" and not name.startswith("from"):
            list_memory(tmp_path / name)
    folders = [str(tmp_path / name) for name in cases]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(undamaged), way, *folders], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for (name, (_, expected)), (message, seconds, megabytes) in zip(cases.items(), results, strict=True):
        assert expected in message, name
        assert "\n" not in message, name
        assert seconds < SECONDS, name
        assert megabytes < MEGABYTES, name


def list_memory(folder: Path) -> None:
    """Writes a manifest that lists the memory: the author of a model writes it too."""
    size = (folder / MEMORY).stat().st_size
    digest = "0" if size > 10**9 else sha256(folder / MEMORY)
    (folder / MANIFEST).write_text(json.dumps({"sha256": {MEMORY: [digest]}}))


def test_files_that_are_read_later_are_limited_too(good: Path, tmp_path: Path) -> None:
    for name, read in {SHORTLIST: Shortlist.load, CANARY: read_examples}.items():
        folder = copytree(good, tmp_path / name)
        device(name)(folder)
        with pytest.raises(ModelError, match="not a regular file"):
            read(folder)
    device(LOG)(folder)
    assert last_event(folder) == {}


def test_verify_prints_a_line_for_each_fault(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copytree(good, tmp_path / "model")
    assert main(["verify", str(folder)]) == 0
    assert "without a manifest" in capsys.readouterr().out
    assert main(["verify", str(folder), "--renew"]) == 0
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.endswith("the manifest lists model.toml, tokenizer.json, weights.safetensors\n")
    weights(lambda tensors: tensors[QUERY].fill_(torch.nan))(folder)
    change = (folder / TOKENIZER).read_text() + "\n"
    (folder / TOKENIZER).write_text(change)
    assert main(["verify", str(folder)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [str(folder / name) for name in (WEIGHTS, WEIGHTS, TOKENIZER)]
    assert main(["verify", str(folder), "--renew"]) == 2


def test_verify_and_quantize_read_no_more_than_the_model_has(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {name: copytree(good, tmp_path / name) for name in ("terabyte", "described", "device", "flipped")}
    for folder in folders.values():
        write_manifest(folder)
    CASES["a terabyte of zeros"][0](folders["terabyte"])
    CASES["a terabyte that is described"][0](folders["described"])
    device(MEMORY)(folders["device"])
    flip_bit(folders["flipped"])
    for name, folder in folders.items():
        for command in (["verify", str(folder)], ["quantize", str(folder), "-o", str(tmp_path / "int8")]):
            started = time.process_time()
            assert main(command) == 2, (name, command)
            assert time.process_time() - started < SECONDS, (name, command)
            (line,) = capsys.readouterr().err.splitlines()
            assert str(folder) in line, (name, command)
    assert not (tmp_path / "int8").exists()


def test_info_and_resume_wait_for_no_pipe_and_map_no_terabyte(good: Path, tmp_path: Path) -> None:
    folder = copytree(good, tmp_path / "model")
    CASES["a terabyte of zeros"][0](folder)
    with pytest.raises(ModelError, match="its header describes another size"):
        describe_model(folder)
    (folder / SETTINGS).unlink()
    os.mkfifo(folder / SETTINGS)
    writer = threading.Thread(target=(folder / SETTINGS).write_text, args=("",), daemon=True)
    writer.start()  # if somebody reads the pipe, the reading ends
    with pytest.raises(ModelError, match="is not a regular file"):
        regard.resume(folder)


def test_every_flipped_byte_of_the_weights_is_noticed(good: Path, tmp_path: Path) -> None:
    folder = copytree(good, tmp_path / "model")
    write_manifest(folder)
    data = (folder / WEIGHTS).read_bytes()
    for place in range(0, len(data), max(1, len(data) // 100)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        (folder / WEIGHTS).write_bytes(damaged)
        with pytest.raises(ModelError):
            read_folder(folder)


def test_a_kill_between_files_leaves_a_folder_that_opens(good: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Both the old and the new file agree with the manifest while one is replaced by the other."""
    folder = copytree(good, tmp_path / "model")
    write_manifest(folder)
    tensors = load_file(folder / WEIGHTS)
    rename = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if Path(target).name == WEIGHTS:
            raise KeyboardInterrupt
        return rename(path, target)

    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_weights(folder, changed)
    assert len(read_manifest(folder)[WEIGHTS]) == 2
    regard.load(folder, engine="torch")
    write_weights(folder, changed)
    assert len(read_manifest(folder)[WEIGHTS]) == 1
    assert find_changed(folder, [WEIGHTS]) == []
    infinite = {name: tensor / 0 for name, tensor in tensors.items()}
    with pytest.raises(ModelError, match="contains values that are not finite"):
        write_weights(folder, infinite)


def test_a_file_that_is_written_later_is_listed_too(good: Path, tmp_path: Path) -> None:
    folder = copytree(good, tmp_path / "model")
    Confidence(1.0, 2.0, 3).save(folder)
    assert read_manifest(folder) == {}  # of an earlier version: it gets none
    write_manifest(folder)
    write_listed(folder, CONFIDENCE, lambda path: path.write_bytes((folder / CONFIDENCE).read_bytes() + b" "))
    assert find_changed(folder, [CONFIDENCE]) == []
    (folder / CONFIDENCE).unlink()
    regard.load(folder, engine="torch")
    assert "is missing" in find_changed(folder, [CONFIDENCE])[0]
