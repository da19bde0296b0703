"""Compiles the native engine to WebAssembly: `make wasm` runs this module, which needs ziglang from PyPI.

The sources are those of `decoding/native`. The same sources and the same compiler always give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
ENGINE = HERE / "engine.wasm"
RECORD = HERE / "engine.json"
"""The digests of the sources and of the engine that was compiled from them."""
COMPILER = "ziglang 0.17.0"
FOLDERS = ("decoding/native", "model/kernels")
UNITS = ("decoding/native/javascript_interface.cpp", "decoding/native/arithmetic_kernels.cpp")
OTHER = ("python_interface.cpp", "fused_training_steps.cpp")
"""Sources that are not part of this engine."""
FLAGS = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-mcpu=generic+simd128"),
    *("-std=c++17", "-O3", "-g0", "-fno-rtti", "-fvisibility=hidden", "-ffp-contract=off", "-Wno-psabi"),
    *("-DREGARD_KERNELS=portable", "-Wl,--strip-all", "-Wl,--gc-sections"),
)


def compile_engine(output: Path) -> None:
    """Compiles the engine into a file, without objects of an earlier compilation."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "ziglang", "c++", *FLAGS, *UNITS, "-o", str(output.resolve())]
        environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(command, cwd=HERE.parent, env=environment, check=True)  # noqa: S603


def record() -> dict[str, str]:
    """Returns the record of the current sources, and of the engine as it is."""
    files = [
        path
        for folder in FOLDERS
        for path in (HERE.parent / folder).iterdir()
        if path.suffix in (".cpp", ".h") and path.name not in OTHER
    ]
    return {"compiler": COMPILER, "sources": _digest(sorted(files)), "engine": _digest([ENGINE])}


def _digest(paths: Iterable[Path]) -> str:
    """Returns the SHA-256 of files and of the flags of the compiler; comments of sources do not count."""
    digest = hashlib.sha256(" ".join((*FLAGS, *UNITS)).encode())
    for path in paths:
        content = path.read_bytes()
        if path != ENGINE:
            content = b" ".join(re.sub(rb"//[^\n]*", b"", content).split())
        digest.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


if __name__ == "__main__":
    if f"ziglang {version('ziglang')}" != COMPILER:
        sys.exit(f"the engine is compiled with {COMPILER}: pip install {COMPILER.replace(' ', '==')}")
    compile_engine(ENGINE)
    RECORD.write_text(json.dumps(record(), indent=1) + "\n")
