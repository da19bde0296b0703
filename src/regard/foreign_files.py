"""Recognises the models and files of other programs, to say what they are and what to do with them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

START = 512
POINTER = b"version https://git-lfs.github.com/spec/"


def identify(path: Path) -> str:
    """Says what a file or folder is that is no model folder, and what to do; empty if it is nothing known."""
    try:
        return identify_folder(path) if path.is_dir() else identify_file(path)
    except OSError:
        return ""


def pointer(path: Path) -> str:
    """Says what to do with a pointer of Git LFS, which stands in place of a large file; empty if it is none."""
    with path.open("rb") as file:
        return POINTED if file.read(len(POINTER)) == POINTER else ""


def identify_folder(folder: Path) -> str:
    """Says which program's model lies in a folder, or where a model lies within it."""
    names = {path.name for path in folder.iterdir()}
    if (folder.parent / "model.toml").is_file():
        return f"a part of the model {folder.parent}: give that folder"
    if not names:
        return "an empty folder"
    whole = any(name.startswith(("model.safetensors", "pytorch_model.bin")) for name in names)
    if "config.json" in names and whole:
        return HUGGING_FACE.format(folder)
    if "config.json" in names and "model.bin" in names:
        return f"a model of CTranslate2, which Regard writes but does not read. {ORIGINAL}"
    if any(name.endswith(".onnx") for name in names):
        return f"a model in ONNX, which Regard writes but does not read. {ORIGINAL}"
    if "config.json" in names:
        return HUGGING_FACE.format(folder)
    if "weights.safetensors" in names:
        return "a part of a model folder: copy the whole folder"
    for name in sorted(names):
        if name.endswith((".gguf", ".npz")):
            return f"{name} in it is {identify_file(folder / name)}"
    inner = [path.parent for pattern in INSIDE for path in sorted(folder.glob(pattern))]
    return f"a model lies in {inner[0]}: give that folder" if inner else ""


HUGGING_FACE = "a model of Hugging Face. Run regard import {} -o NEW, then use NEW"
INSIDE = ("*/model.toml", "*/config.json", "snapshots/*/config.json")
ORIGINAL = "Give the model that it was made from"


def identify_file(path: Path) -> str:
    """Says of which format a file is."""
    with path.open("rb") as file:
        start = file.read(START)
    if not start:
        return "an empty file"
    said = next((said for matches, said in FORMATS if matches(start)), None)
    if said is None and start.startswith(b"PK\x03\x04"):
        said = _zipped(path)
    if said is None and _text(start):
        said = "a text file, not a model"
    if said is None:
        return ""
    return said.replace(LIES, _where(path))


LIES = "{lies}"
"""Stands in a message for the folder that a file is a part of."""


def _where(path: Path) -> str:
    """Which folder to give in place of a file in it."""
    folder = path.parent
    if (folder / "model.toml").is_file() or (folder / "config.json").is_file():
        return f"give the folder that it lies in, {folder}"
    return "give the whole folder of Hugging Face, with config.json and the tokenizer's files"


def _zipped(path: Path) -> str:
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
    return "a ZIP archive: unpack it, and give the folder of the model"


def _starts(*wanted: bytes) -> Callable[[bytes], bool]:
    return lambda start: start.startswith(wanted)


def _safetensors(start: bytes) -> bool:
    return start[8:9] == b"{" and 2 <= int.from_bytes(start[:8], "little") < 2**40


def _ctranslate2(start: bytes) -> bool:
    """The version of the format, then the length and the name of a specification."""
    length = int.from_bytes(start[4:6], "little")
    return 0 < length < 100 and start[6 : 6 + length].endswith(b"Spec\0")


def _onnx(start: bytes) -> bool:
    """A protocol buffer: field 1 is the version, and then comes the name of a program, an opset or the graph."""
    return start[:1] == b"\x08" and b"\0" < start[1:2] < b"\x20" and start[2:3] in (b"\x12", b"\x1a", b"\x3a", b"\x42")


def _sentencepiece(start: bytes) -> bool:
    """A protocol buffer: field 1 is a piece, whose field 1 is its text, and its field 2 a score."""
    if len(start) < 5 or start[0] != 0x0A or start[2] != 0x0A or start[1] > 127:
        return False
    score = start[4 + start[3] : 5 + start[3]]
    return score in (b"\x15", b"\x18") or start[1] == start[3] + 2


def _pickle(start: bytes) -> bool:
    return start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _text(start: bytes) -> bool:
    """UTF-8 without control characters; the last character may be cut."""
    text = start.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(start) - 4 and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)


POINTED = "a pointer of Git LFS, not the file itself: run git lfs pull where it was cloned"
CONVERT = "Regard reads it after it was converted for Hugging Face: give the folder of that model"
MARIAN = f"a model of Marian. {CONVERT} (transformers has convert_marian_to_pytorch.py)"
PICKLE = f"weights of PyTorch alone: {LIES}"
FORMATS: list[tuple[Callable[[bytes], bool], str]] = [
    (_starts(POINTER), POINTED),
    (_starts(b"GGUF"), f"a GGUF file of llama.cpp, which Regard does not read. {ORIGINAL}: a folder of Hugging Face"),
    (_starts(b"lmgg", b"fmgg", b"tjgg"), f"a GGML file of llama.cpp, which Regard does not read. {ORIGINAL}"),
    (_starts(b"24ka"), "a model of llama2.c in version 1 or 2. Regard reads version 0: python export.py --version 0"),
    (_safetensors, f"weights alone (safetensors): {LIES}"),
    (_pickle, PICKLE),
    (_ctranslate2, f"a model of CTranslate2, which Regard writes but does not read. {ORIGINAL}"),
    (_onnx, f"a model in ONNX, which Regard writes but does not read. {ORIGINAL}"),
    (_sentencepiece, f"a vocabulary of SentencePiece, not a model: {LIES}"),
    (_starts(b"\x89HDF"), f"weights of TensorFlow (HDF5). {CONVERT}"),
    (_starts(b"\x1f\x8b", b"BZh", b"\xfd7zXZ"), "a compressed archive: unpack it, and give the folder of the model"),
    (_starts(b"<!DOCTYPE", b"<!doctype", b"<html"), "a web page: the download went wrong"),
    (lambda start: start.lstrip().startswith(b"{") and _text(start), f"a JSON file, not a model: {LIES}"),
]
