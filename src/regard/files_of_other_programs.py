"""Recognizes models and files of other programs; the TOML file of the same name contains the advice to give."""

from __future__ import annotations

import re
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

START = 512  # number of bytes read to recognize a file
POINTER = b"version https://git-lfs.github.com/spec/"
INSIDE = ("*/model.toml", "*/config.json", "snapshots/*/config.json")


@cache
def _advice() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _describe(kind: str, path: Path) -> str:
    """Completes a description with advice for `path`; `kind` is a key of [models], or a description."""
    folder = path.parent
    named = (folder / "model.toml").is_file() or (folder / "config.json").is_file()
    whole = "specify the whole Hugging Face folder, with config.json and the tokenizer files"
    advice = _advice()
    return str(advice["models"].get(kind, kind)).format(
        original=advice["original"],
        convert=advice["convert"],
        folder=path,
        use=f"specify its folder, {folder}" if named else whole,
    )


def identify(path: Path) -> str:
    """Describes a file or folder of another program, with advice; returns an empty string if it is unknown."""
    try:
        return identify_folder(path) if path.is_dir() else identify_file(path)
    except OSError:
        return ""


def describe_pointer(path: Path) -> str:
    """Describes a Git LFS pointer, which stands in for a large file; returns an empty string for other files."""
    with path.open("rb") as file:
        return _describe("pointer", path) if file.read(len(POINTER)) == POINTER else ""


def identify_folder(folder: Path) -> str:
    """Describes the model in a folder, or says which subfolder contains a model."""
    names = {path.name for path in folder.iterdir()}
    if (folder.parent / "model.toml").is_file():
        return f"part of the model {folder.parent}: specify that folder"
    if not names:
        return "an empty folder"
    whole = any(name.startswith(("model.safetensors", "pytorch_model.bin")) for name in names)
    if "config.json" in names and "model.bin" in names and not whole:
        return _describe("ctranslate2", folder)
    if any(name.endswith(".onnx") for name in names) and not ("config.json" in names and whole):
        return _describe("onnx", folder)
    if "config.json" in names:
        return _describe("hugging_face", folder)
    if "weights.safetensors" in names:
        return "part of a model folder: copy the whole folder"
    for name in sorted(names):
        if name.endswith((".gguf", ".npz")):
            return f"it contains {name}, {identify_file(folder / name)}"
    inner = [path.parent for pattern in INSIDE for path in sorted(folder.glob(pattern))]
    return f"the model is in {inner[0]}: specify that folder" if inner else ""


def identify_file(path: Path) -> str:
    """Describes the format of a file; returns an empty string for a device or a pipe."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        start = file.read(START)
    if not start:
        return "an empty file"
    for known in _advice()["formats"]:
        if re.match(known["start"].encode(), start, re.DOTALL):
            return _describe(known["is"], path)
    if start.startswith(b"PK\x03\x04"):
        return _identify_zip(path)
    if _is_sentencepiece(start):
        return _describe("a SentencePiece vocabulary, not a model: {use}", path)
    if not _is_text(start):
        return ""
    is_json = start.lstrip().startswith(b"{")
    return _describe("a JSON file, not a model: {use}" if is_json else "a text file, not a model", path)


def _identify_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a damaged ZIP archive: download it again"
    kinds = [known["is"] for known in _advice()["archives"] if any(re.match(known["file"], name) for name in names)]
    return _describe(kinds[0] if kinds else _advice()["archives"][-1]["is"], path)


def _is_sentencepiece(start: bytes) -> bool:
    """Checks for the protocol buffer format: field 1 is a piece, whose fields 1 and 2 are its text and score."""
    if len(start) < 5 or start[0] != 0x0A or start[2] != 0x0A or start[1] > 127:
        return False
    score = start[4 + start[3] : 5 + start[3]]
    return score in (b"\x15", b"\x18") or start[1] == start[3] + 2


def _is_text(start: bytes) -> bool:
    """Reports whether bytes are UTF-8 text without control characters; the last character may be cut off."""
    text = start.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)
