"""Folders of an attacker are refused in one line, within 2 seconds and 200 MB."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.interop import huggingface, llama2c
from tests.interop.limits import run_limited
from tests.interop.published import save_bert, save_gpt2, save_llama, save_marian, save_roberta
from tests.interop.test_damage import Damage, config, put

SAVERS: dict[str, Callable[[Path], Path]] = {
    "bert": save_bert,
    "roberta": lambda folder: save_roberta(folder, "RobertaForMaskedLM"),
    "gpt2": save_gpt2,
    "llama": save_llama,
    "marian": save_marian,
}
HUGE = 2**31 - 1


def link(name: str, target: str) -> Damage:
    """Replaces a file by a link."""

    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return damage


def pipe(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return damage


def write(name: str, content: Callable[[], bytes]) -> Damage:
    return lambda folder: (folder / name).write_bytes(content())


def sparse(name: str, size: int) -> Damage:
    """Replaces a file by one of `size` bytes that needs no space on the disk."""

    def damage(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return damage


def header(tensors: dict[str, Any], size: int | None = None) -> Damage:
    """Replaces the weights by a file of safetensors with this header."""

    def damage(folder: Path) -> None:
        text = json.dumps(tensors).encode()
        length = len(text) if size is None else size
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + text + bytes(64))

    return damage


def pickled(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Stores the weights as a pickle, changed."""

    def damage(folder: Path) -> None:
        content: dict[str, Any] = load_file(folder / "model.safetensors")
        change(content)
        (folder / "model.safetensors").unlink()
        torch.save(content, folder / "pytorch_model.bin")

    return damage


def compress(folder: Path) -> None:
    """Stores the weights as a pickle, whose archive is compressed and has 300 MB of zeros in it."""
    pickled(lambda _: None)(folder)
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in entries.items():
            new.writestr(name, bytes(300_000_000) if name.endswith("data.pkl") else content)


def chain(*damages: Damage) -> Damage:
    def damage(folder: Path) -> None:
        for each in damages:
            each(folder)

    return damage


def piece(text: bytes, score: float = -1.0) -> bytes:
    """One piece of a SentencePiece model."""
    content = b"\x0a" + varint(len(text)) + text + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + varint(len(content)) + content


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


BPE = b"\x12\x02\x18\x02"
WORD = "bert.embeddings.word_embeddings.weight"
TEMPLATE = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
PANICS = json.dumps(
    {
        "model": {
            "type": "WordLevel",
            "vocab": {"[PAD]": 0, "a": 1, "[UNK]": 2, "[CLS]": 3, "[SEP]": 4, "[MASK]": 5},
            "unk_token": "[UNK]",
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": TEMPLATE,
            "pair": [*TEMPLATE, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {},
        },
    }
)
"""A tokenizer whose template names a special token that it does not have."""

CASES: dict[str, tuple[str, Damage, str]] = {
    "many layers": ("bert", config(num_hidden_layers=10**9), "num_hidden_layers is 1,000,000,000, but there are only"),
    "many layers of gpt2": ("gpt2", config(n_layer=HUGE), "n_layer is 2,147,483,647, but there are only"),
    "many layers of marian": ("marian", config(decoder_layers=10**8), "decoder_layers is 100,000,000, but there are"),
    "a number of 70 bits": ("llama", config(num_hidden_layers=2**70), "must be a whole number above 0"),
    "wide": ("bert", config(hidden_size=HUGE), "hidden_size is 2,147,483,647, but no tensor has a dimension above"),
    "wide inside": ("llama", config(intermediate_size=10**9), "no tensor has a dimension above"),
    "many heads": ("gpt2", config(n_head=10**9), "no tensor has a dimension above"),
    "a large vocabulary": ("bert", config(vocab_size=HUGE), "vocab_size is 2,147,483,647, but no tensor"),
    "a large target": ("marian", config(decoder_vocab_size=HUGE), "decoder_vocab_size is 2,147,483,647, but no tensor"),
    "many segments": ("bert", config(type_vocab_size=10**9), "type_vocab_size is 1,000,000,000, but no tensor"),
    "many positions": ("bert", config(max_position_embeddings=10**6), "has the shape (64, 16) instead of"),
    "a billion positions": ("bert", config(max_position_embeddings=10**9), "max_length must be at most 1,000,000"),
    "a nested config": ("bert", put("config.json", '{"a":' * 100_000 + "1" + "}" * 100_000), "damaged: not JSON"),
    "a large config": (
        "bert",
        write("config.json", lambda: b'{"a":"' + bytes(5_000_000)),
        "bytes, but such a file may have",
    ),
    "many values": ("bert", write("config.json", lambda: b"[" + b"0," * 1_999_990 + b"0]"), "damaged: not a JSON obj"),
    "a long architecture": (
        "bert",
        config(model_type=None, architectures=["ForA" * 100_000 + "-"]),
        "the model_type is missing and cannot be inferred",
    ),
    "a device as config": ("bert", link("config.json", "/dev/zero"), "is not a regular file"),
    "a device as vocabulary": ("bert", link("vocab.txt", "/dev/zero"), "there is no vocabulary"),
    "a device as tokens": ("bert", link("tokenizer.json", "/dev/zero"), ""),
    "a device as weights": ("bert", link("model.safetensors", "/dev/zero"), "there are no weights"),
    "a pipe": ("bert", pipe("model.safetensors"), "there are no weights"),
    "a link out": ("bert", link("vocab.txt", "/etc/passwd"), "vocab.txt: is a link to a file outside its folder"),
    "a link to weights": ("bert", link("model.safetensors", "/etc/passwd"), "is a link to a file outside its folder"),
    "weights of a terabyte": ("bert", sparse("model.safetensors", 1 << 40), "damaged or unreadable"),
    "a long header": ("bert", header({}, size=2**62), "damaged or unreadable"),
    "overflowing shapes": (
        "bert",
        header({WORD: {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 64]}}),
        "damaged or unreadable",
    ),
    "negative shapes": (
        "bert",
        header({WORD: {"dtype": "F32", "shape": [-1, -16], "data_offsets": [0, 64]}}),
        "damaged or unreadable",
    ),
    "offsets beyond the end": (
        "bert",
        header({WORD: {"dtype": "F32", "shape": [4, 4], "data_offsets": [1 << 60, (1 << 60) + 64]}}),
        "damaged or unreadable",
    ),
    "overlapping tensors": (
        "bert",
        header({f"t{n}": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} for n in range(100)}),
        "damaged or unreadable",
    ),
    "an expanded tensor": (
        "bert",
        pickled(lambda t: t.update({WORD: torch.zeros(1).expand(10**6, 10**6)})),
        "embeddings.word_embeddings.weight is larger than its data",
    ),
    "a panic of tokenizers": ("bert", put("tokenizer.json", PANICS), "cannot split text into tokens: no entry found"),
    "a sparse tensor": (
        "bert",
        pickled(lambda t: t.update({WORD: torch.zeros(9, 9).to_sparse()})),
        "embeddings.word_embeddings.weight is not a plain array of numbers",
    ),
    "a tensor without data": (
        "bert",
        pickled(lambda t: t.update({WORD: torch.empty(10**6, 10**6, device="meta")})),
        "embeddings.word_embeddings.weight is not a plain array of numbers",
    ),
    "a large tensor": (
        "bert",
        header({WORD: {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}),
        "damaged or unreadable",
    ),
    "a compressed pickle": ("bert", compress, "damaged: PyTorch does not compress its files"),
    "a vocabulary of line feeds": ("bert", write("vocab.txt", lambda: b"\n" * 40_000_000), "40,000,000 lines; such"),
    "a vocabulary of a terabyte": ("bert", sparse("vocab.txt", 1 << 40), "bytes, but such a file may have at most"),
    "a high id": ("gpt2", put("vocab.json", '{"a": 99999999999}'), "contains the id 99,999,999,999, but Regard"),
    "a high id of marian": ("marian", put("vocab.json", '{"<unk>": 0, "a": 2000000000}'), "the id 2,000,000,000"),
    "a high added id": ("bert", put("added_tokens.json", '{"a": 9999999999999999999999}'), "supports ids only up to"),
    "merges of a terabyte": ("gpt2", sparse("merges.txt", 1 << 40), "bytes, but such a file may have at most"),
    "a long piece": ("llama", write("tokenizer.model", lambda: piece(b"a" * 50_000_000) + BPE), "damaged: not a Sent"),
    "many long pieces": (
        "llama",
        write("tokenizer.model", lambda: b"".join(piece(b"%06d" % n + b"a" * 990) for n in range(5000)) + BPE),
        "its pieces have more than 4,000,000 characters",
    ),
    "a piece without end": ("llama", write("tokenizer.model", lambda: b"\x0a\xff\xff\xff\xff\x0f" + BPE), "damaged"),
    "a piece of 2^64": ("llama", write("tokenizer.model", lambda: b"\x0a" + b"\xff" * 9 + b"\x01abc"), "damaged"),
    "a varint without end": ("llama", write("tokenizer.model", lambda: b"\xff" * 1_000_000), "damaged"),
    "an infinite score": ("llama", write("tokenizer.model", lambda: piece(b"a", float("inf")) + BPE), "damaged"),
    "a broken character map": (
        "llama",
        write("tokenizer.model", lambda: piece(b"a") + b"\x1a\x06\x12\x04\xff\xff\xff\x7f"),
        "damaged",
    ),
    "pooling elsewhere": (
        "bert",
        chain(
            lambda folder: shutil.rmtree(folder),
            lambda folder: str(save_bert(folder, "BertModel")),
            put("modules.json", '[{"type": "x.Pooling", "path": "../../.."}]'),
        ),
        "lists the folder ../../.., which is not in this folder",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_folder_is_refused(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    family, damage, reason = CASES[name]
    source = SAVERS[family](tmp_path / "theirs")
    damage(source)
    message = run_limited(lambda: huggingface.import_model(source, tmp_path / "ours"))
    assert reason in message, message
    assert not message or message.startswith("ModelError: "), message
    assert "\n" not in message
    assert (tmp_path / "ours").exists() == (not message)
    assert capfd.readouterr().err == ""


def llama_file(width: int, hidden: int, layers: int, heads: int, groups: int, vocabulary: int, length: int) -> bytes:
    return struct.pack("<7i", width, hidden, layers, heads, groups, vocabulary, length) + bytes(4096)


HEADERS: dict[str, tuple[int, int, int, int, int, int, int]] = {
    "all negative": (-1, -1, -1, -1, -1, -1, -1),
    "a negative width": (-16, 24, 2, 4, 2, 300, 32),
    "no heads": (16, 24, 2, 0, 0, 300, 32),
    "the largest numbers": (HUGE, HUGE, HUGE, HUGE, HUGE, HUGE, HUGE),
    "the smallest numbers": (-HUGE - 1,) * 7,
    "many layers": (16, 24, HUGE, 4, 2, 300, 32),
    "overflowing sizes": (2**30, 2**30, 4, 4, 4, 2**30, 2**30),
    "a large vocabulary": (16, 24, 2, 4, 2, HUGE, 32),
    "odd heads": (3, 1, 1, 1, 1, 1, 1),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_file_of_llama2c_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.bin").write_bytes(llama_file(*HEADERS[name]))
    message = run_limited(lambda: llama2c.import_model(tmp_path / "model.bin", tmp_path, tmp_path / "ours"))
    assert message.startswith(f"ModelError: {tmp_path / 'model.bin'}: "), message
    assert "\n" not in message


def test_odd_heads_are_refused_although_the_size_fits(tmp_path: Path) -> None:
    """Rotary positions turn pairs of numbers, which heads of an odd width do not have."""
    numbers = (3, 1, 1, 1, 1, 300, 2)
    sizes = 300 * 3 + 3 + 4 * 9 + 3 + 3 * 3 + 3 + 2 * 2
    (tmp_path / "model.bin").write_bytes(struct.pack("<7i", *numbers) + bytes(4 * sizes))
    message = run_limited(lambda: llama2c.import_model(tmp_path / "model.bin", tmp_path, tmp_path / "ours"))
    assert message.startswith(f"ModelError: {tmp_path / 'model.bin'}: "), message


def test_a_vocabulary_of_llama2c_with_negative_lengths(tmp_path: Path) -> None:
    vocabulary = struct.pack("<i", 5) + b"".join(struct.pack("<fi", 0.0, -8) for _ in range(300))
    (tmp_path / "tokenizer.bin").write_bytes(vocabulary)
    message = run_limited(lambda: llama2c._read_pieces(tmp_path / "tokenizer.bin", 300))
    assert "not a llama2.c vocabulary" in message


def test_files_in_the_cache_of_hugging_face_are_links(tmp_path: Path) -> None:
    """A snapshot has links to the blobs of the same model, and is read; links to other folders are not followed."""
    source = save_bert(tmp_path / "plain")
    model = tmp_path / "hub" / "models--a--b"
    snapshot, blobs = model / "snapshots" / "0123abcd", model / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    for number, path in enumerate(sorted(source.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    assert huggingface.import_model(snapshot, tmp_path / "ours") == []
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(Path("..") / ".." / ".." / "secret.json")
    (tmp_path / "hub" / "secret.json").write_text("{}")
    message = run_limited(lambda: huggingface.import_model(snapshot, tmp_path / "new"))
    assert "config.json: is a link to a file outside its folder" in message


def test_tensors_that_do_not_fit_into_memory_are_refused(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs")
    header({WORD: {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}})(source)
    with (source / "model.safetensors").open("rb+") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        file.truncate(8 + length + 2**42)
    message = run_limited(lambda: huggingface.import_model(source, tmp_path / "ours"))
    assert message.endswith("model.safetensors: does not fit into memory"), message


def test_a_folder_of_ctranslate2_is_not_parsed(tmp_path: Path) -> None:
    """Its tensors may have any size: Regard does not read them."""
    name = b"TransformerSpec\0"
    spec = struct.pack("<IH", 6, len(name)) + name + struct.pack("<IIB4I", 1, 1, 4, *[2**32 - 1] * 4)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.bin").write_bytes(spec)
    (tmp_path / "theirs" / "config.json").write_text("{}")
    message = run_limited(lambda: huggingface.import_model(tmp_path / "theirs", tmp_path / "ours"))
    assert "a CTranslate2 model, which Regard writes but does not read" in message


def compute_too_long() -> None:
    end = time.process_time() + 2.1
    while time.process_time() < end:
        pass


def test_the_limits_of_these_tests_hold() -> None:
    with pytest.raises(AssertionError, match=r"took \d+ MB"):
        run_limited(lambda: bytearray(300_000_000))
    with pytest.raises(AssertionError, match=r"took [\d.]+ s"):
        run_limited(compute_too_long)
