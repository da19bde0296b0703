"""The command as a call, where that will do, and as a process."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from regard.cli import main
from regard.model_folder import NATIVE
from regard.model_manifest import write_manifest


class Done(NamedTuple):
    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str, stdin: bytes = b"") -> Done:
    """What `regard ARGUMENTS` does, in this process."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main(arguments)
    return Done(code, *capsys.readouterr())


def process(*arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Done:
    """What `regard ARGUMENTS` does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "regard", *arguments], input=stdin, capture_output=True, env=environment, check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def with_settings(model: str, folder: Path, old: str, new: str) -> str:
    """A copy of a model, in `folder`, that records another setting."""
    copy = Path(shutil.copytree(model, folder / "copy"))
    text = (copy / "model.toml").read_text()
    assert text.count(old) == 1
    (copy / "model.toml").write_text(text.replace(old, new))
    write_manifest(copy)
    return str(copy)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder and what is in it, nothing for a folder; what the native engine packs is left out."""
    paths = [path for path in folder.rglob("*") if NATIVE not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}
