"""Writes and checks the manifest of a model folder: the SHA-256 of each file that affects the model's outputs.

`manifest.json` is `{"sha256": {"weights.safetensors": ["..."], ...}}`. While a file is being replaced, it lists both
the old and the new digest, so files match it even after a crash. Folders of older versions have no manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from regard.atomic_files import write_atomically, write_text
from regard.errors import ModelError
from regard.model_folder import CONFIDENCE, LIMITS, MANIFEST, MEMORY, SETTINGS, SHORTLIST, TOKENIZER, WEIGHTS
from regard.untrusted_files import read_json, require_regular

LISTED = (SETTINGS, WEIGHTS, TOKENIZER, CONFIDENCE, SHORTLIST, MEMORY)
SMALL = (SETTINGS, TOKENIZER, CONFIDENCE)
"""Files that are hashed whenever a model is loaded. Weights, shortlist and memory are hashed when they are read."""
LARGEST = 100_000

Digests = dict[str, list[str]]


def sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def read_manifest(folder: Path) -> Digests:
    """Returns the digests in a folder's manifest, or an empty dict if there is no manifest."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    content = read_json(path, LARGEST, folder)
    digests = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(digests, dict) or not all(
        name in LISTED and isinstance(known, list) and known for name, known in digests.items()
    ):
        raise ModelError(f"{path}: damaged: copy the whole folder again")
    return digests


def _write(folder: Path, digests: Digests) -> None:
    write_text(folder / MANIFEST, json.dumps({"sha256": digests}, indent=1) + "\n")


def write_manifest(folder: Path) -> None:
    """Hashes the files of a model folder and writes its manifest."""
    _write(folder, {name: [sha256(folder / name)] for name in LISTED if (folder / name).is_file()})


def write_listed(folder: Path, name: str, write: Callable[[Path], object]) -> None:
    """Writes a file of a model folder atomically with `write`, and updates the manifest.

    Writing weights creates a missing manifest; writing other files does not.
    """
    digests, new = read_manifest(folder), []

    def write_and_announce(temporary: Path) -> None:
        write(temporary)
        new.append(sha256(temporary))
        if digests:
            _write(folder, {**digests, name: [*digests.get(name, []), *new]})

    write_atomically(folder / name, write_and_announce)
    if digests:
        _write(folder, {**digests, name: new})
    elif name == WEIGHTS:
        write_manifest(folder)


def find_changed(folder: Path, names: Iterable[str]) -> list[str]:
    """Returns a message for each file that is missing or differs from the manifest."""
    for _ in range(3):
        digests, faults = read_manifest(folder), []
        for path in (folder / name for name in names if name in digests):
            if path.exists():
                require_regular(path, folder, LIMITS.get(path.name))  # before it is hashed
                if sha256(path) not in digests[path.name]:
                    faults.append(
                        f"{path}: is damaged or was changed: copy the whole folder again, or if you changed it "
                        f"yourself, run regard verify --renew {folder}"
                    )
            elif path.name != MEMORY:  # users may delete the translation memory
                faults.append(f"{path}: is missing, but the manifest lists it: copy the whole folder again")
        if not faults or read_manifest(folder) == digests:
            break  # if the manifest changed meanwhile, another process has replaced the model: compare again
    return faults


def require_unchanged(folder: Path, names: Iterable[str]) -> None:
    """Raises ModelError if a file differs from the manifest; the confidence and shortlist files may be missing."""
    present = [name for name in names if name not in (CONFIDENCE, SHORTLIST) or (folder / name).exists()]
    if faults := find_changed(folder, present):
        raise ModelError(faults[0])
