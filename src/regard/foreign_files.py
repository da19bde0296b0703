"""Recognises models and files of other programs, and suggests how to use them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

START = 512  # bytes that are read to recognise a file
POINTER = b"version https://git-lfs.github.com/spec/"


def identify(path: Path) -> str:
    """Describes a file or folder that is not a model folder, with advice; returns an empty text if it is unknown."""
    try:
        return identify_folder(path) if path.is_dir() else identify_file(path)
    except OSError:
        return ""


def describe_pointer(path: Path) -> str:
    """Returns advice for a Git LFS pointer, which replaces a large file; an empty text for any other file."""
    with path.open("rb") as file:
        return POINTED if file.read(len(POINTER)) == POINTER else ""


def identify_folder(folder: Path) -> str:
    """Describes the model in a folder, or says where in it a model is."""
    names = {path.name for path in folder.iterdir()}
    if (folder.parent / "model.toml").is_file():
        return f"part of the model {folder.parent}: name that folder"
    if not names:
        return "an empty folder"
    whole = any(name.startswith(("model.safetensors", "pytorch_model.bin")) for name in names)
    if "config.json" in names and whole:
        return HUGGING_FACE.format(folder)
    if "config.json" in names and "model.bin" in names:
        return f"a CTranslate2 model, which Regard writes but does not read. {ORIGINAL}"
    if any(name.endswith(".onnx") for name in names):
        return f"an ONNX model, which Regard writes but does not read. {ORIGINAL}"
    if "config.json" in names:
        return HUGGING_FACE.format(folder)
    if "weights.safetensors" in names:
        return "part of a model folder: copy the whole folder"
    for name in sorted(names):
        if name.endswith((".gguf", ".npz")):
            return f"it contains {name}, {identify_file(folder / name)}"
    inner = [path.parent for pattern in INSIDE for path in sorted(folder.glob(pattern))]
    return f"the model is in {inner[0]}: name that folder" if inner else ""


HUGGING_FACE = "a Hugging Face model. Run regard import {} -o NEW, then use NEW"
INSIDE = ("*/model.toml", "*/config.json", "snapshots/*/config.json")
ORIGINAL = "Use the model that it was converted from"


def identify_file(path: Path) -> str:
    """Describes the format of a file."""
    with path.open("rb") as file:
        start = file.read(START)
    if not start:
        return "an empty file"
    description = next((text for matches, text in FORMATS if matches(start)), None)
    if description is None and start.startswith(b"PK\x03\x04"):
        description = _identify_zip(path)
    if description is None and _is_text(start):
        description = "a text file, not a model"
    return (description or "").replace(FOLDER, _folder_to_use(path))


FOLDER = "{folder}"
"""Placeholder in a description for the folder to use instead of a file in it."""


def _folder_to_use(path: Path) -> str:
    folder = path.parent
    if (folder / "model.toml").is_file() or (folder / "config.json").is_file():
        return f"name its folder, {folder}"
    return "name the whole Hugging Face folder, with config.json and the files of the tokenizer"


def _identify_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a damaged ZIP archive: download it again"
    if any(name.startswith("special:model") for name in names):
        return MARIAN
    if any(name.endswith(".npy") for name in names):
        return f"an archive of NumPy arrays. {CONVERT}"
    if any(name.endswith("data.pkl") for name in names):
        return PICKLE
    return "a ZIP archive: unpack it and name the model folder in it"


def _starts_with(*wanted: bytes) -> Callable[[bytes], bool]:
    return lambda start: start.startswith(wanted)


def _is_safetensors(start: bytes) -> bool:
    return start[8:9] == b"{" and 2 <= int.from_bytes(start[:8], "little") < 2**40


def _is_ctranslate2(start: bytes) -> bool:
    """Looks for the version of the format, then the length and the name of a specification."""
    length = int.from_bytes(start[4:6], "little")
    return 0 < length < 100 and start[6 : 6 + length].endswith(b"Spec\0")


def _is_onnx(start: bytes) -> bool:
    """Looks for a protocol buffer: field 1, the version, then the name of a program, an opset or the graph."""
    return start[:1] == b"\x08" and b"\0" < start[1:2] < b"\x20" and start[2:3] in (b"\x12", b"\x1a", b"\x3a", b"\x42")


def _is_sentencepiece(start: bytes) -> bool:
    """Looks for a protocol buffer: field 1 is a piece, whose fields 1 and 2 are its text and its score."""
    if len(start) < 5 or start[0] != 0x0A or start[2] != 0x0A or start[1] > 127:
        return False
    score = start[4 + start[3] : 5 + start[3]]
    return score in (b"\x15", b"\x18") or start[1] == start[3] + 2


def _is_pickle(start: bytes) -> bool:
    return start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _is_text(start: bytes) -> bool:
    """Reports whether bytes are UTF-8 without control characters; the last character may be cut."""
    text = start.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)


POINTED = "a Git LFS pointer, not the file itself: run git lfs pull in the clone"
CONVERT = "Convert it for Hugging Face Transformers and name the folder of that model"
MARIAN = f"a Marian model. {CONVERT} (transformers has convert_marian_to_pytorch.py)"
PICKLE = f"PyTorch weights without their model: {FOLDER}"
FORMATS: list[tuple[Callable[[bytes], bool], str]] = [
    (_starts_with(POINTER), POINTED),
    (_starts_with(b"GGUF"), f"a GGUF file of llama.cpp, which Regard does not read. {ORIGINAL}: a Hugging Face folder"),
    (_starts_with(b"lmgg", b"fmgg", b"tjgg"), f"a GGML file of llama.cpp, which Regard does not read. {ORIGINAL}"),
    (_starts_with(b"24ka"), "a llama2.c model in version 1 or 2. Regard reads version 0: python export.py --version 0"),
    (_is_safetensors, f"safetensors weights without their model: {FOLDER}"),
    (_is_pickle, PICKLE),
    (_is_ctranslate2, f"a CTranslate2 model, which Regard writes but does not read. {ORIGINAL}"),
    (_is_onnx, f"an ONNX model, which Regard writes but does not read. {ORIGINAL}"),
    (_is_sentencepiece, f"a SentencePiece vocabulary, not a model: {FOLDER}"),
    (_starts_with(b"\x89HDF"), f"TensorFlow weights (HDF5). {CONVERT}"),
    (_starts_with(b"\x1f\x8b", b"BZh", b"\xfd7zXZ"), "a compressed archive: unpack it and name the model folder in it"),
    (_starts_with(b"<!DOCTYPE", b"<!doctype", b"<html"), "a web page: the download failed"),
    (lambda start: start.lstrip().startswith(b"{") and _is_text(start), f"a JSON file, not a model: {FOLDER}"),
]
