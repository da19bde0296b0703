"""Recognises models and files of other programs, and suggests how to use them."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path


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
        return CTRANSLATE2
    if any(name.endswith(".onnx") for name in names):
        return ONNX
    if "config.json" in names:
        return HUGGING_FACE.format(folder)
    if "weights.safetensors" in names:
        return "part of a model folder: copy the whole folder"
    for name in sorted(names):
        if name.endswith((".gguf", ".npz")):
            return f"it contains {name}, {identify_file(folder / name)}"
    inner = [path.parent for pattern in INSIDE for path in sorted(folder.glob(pattern))]
    return f"the model is in {inner[0]}: name that folder" if inner else ""


def identify_file(path: Path) -> str:
    """Describes the format of a file."""
    with path.open("rb") as file:
        start = file.read(START)
    if not start:
        return "an empty file"
    description = next((text for pattern, text in FORMATS.items() if re.match(pattern, start, re.DOTALL)), "")
    if not description and start.startswith(b"PK\x03\x04"):
        description = _identify_zip(path)
    elif not description and _is_sentencepiece(start):
        description = f"a SentencePiece vocabulary, not a model: {FOLDER}"
    elif not description and _is_text(start):
        is_json = start.lstrip().startswith(b"{")
        description = f"a JSON file, not a model: {FOLDER}" if is_json else "a text file, not a model"
    return description.replace(FOLDER, _folder_to_use(path))


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
        return f"a Marian model. {CONVERT} (transformers has convert_marian_to_pytorch.py)"
    if any(name.endswith(".npy") for name in names):
        return f"an archive of NumPy arrays. {CONVERT}"
    if any(name.endswith("data.pkl") for name in names):
        return PICKLE
    return "a ZIP archive: unpack it and name the model folder in it"


def _is_sentencepiece(start: bytes) -> bool:
    """Looks for a protocol buffer: field 1 is a piece, whose fields 1 and 2 are its text and its score."""
    if len(start) < 5 or start[0] != 0x0A or start[2] != 0x0A or start[1] > 127:
        return False
    score = start[4 + start[3] : 5 + start[3]]
    return score in (b"\x15", b"\x18") or start[1] == start[3] + 2


def _is_text(start: bytes) -> bool:
    """Reports whether bytes are UTF-8 without control characters; the last character may be cut."""
    text = start.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)


START = 512  # bytes that are read to recognise a file
FOLDER = "{folder}"
"""Placeholder in a description for the folder to use instead of a file in it."""
POINTER = b"version https://git-lfs.github.com/spec/"
POINTED = "a Git LFS pointer, not the file itself: run git lfs pull in the clone"
ORIGINAL = "Use the model that it was converted from"
CONVERT = "Convert it for Hugging Face Transformers and name the folder of that model"
CTRANSLATE2 = f"a CTranslate2 model, which Regard writes but does not read. {ORIGINAL}"
ONNX = f"an ONNX model, which Regard writes but does not read. {ORIGINAL}"
PICKLE = f"PyTorch weights without their model: {FOLDER}"
HUGGING_FACE = "a Hugging Face model. Run regard import {} -o NEW, then use NEW"
INSIDE = ("*/model.toml", "*/config.json", "snapshots/*/config.json")
FORMATS = {  # the first bytes of a file
    POINTER: POINTED,
    rb"GGUF": f"a GGUF file of llama.cpp, which Regard does not read. {ORIGINAL}: a Hugging Face folder",
    rb"lmgg|fmgg|tjgg": f"a GGML file of llama.cpp, which Regard does not read. {ORIGINAL}",
    rb"24ka": "a llama2.c model in version 1 or 2. Regard reads version 0: python export.py --version 0",
    rb".{5}\0\0\0\{": f"safetensors weights without their model: {FOLDER}",  # the length of the header, and the header
    rb"\x80[\x02-\x05]": PICKLE,  # version of the protocol
    rb".{4}[\x01-\x63]\0[^\0]*Spec\0": CTRANSLATE2,  # version, length and name of the specification
    rb"\x08[\x01-\x1f][\x12\x1a:B]": ONNX,  # a protocol buffer: the version; then program, opset or graph
    rb"\x89HDF": f"TensorFlow weights (HDF5). {CONVERT}",
    rb"\x1f\x8b|BZh|\xfd7zXZ": "a compressed archive: unpack it and name the model folder in it",
    rb"<!DOCTYPE|<!doctype|<html": "a web page: the download failed",
}
