"""What `pip install` makes of this repository, with a C++17 compiler and without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NATIVE = "regard/decoding/native/"
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source distribution of this repository holds, unpacked: nothing may be missing in it."""
    place = tmp_path_factory.mktemp("source")
    copy = place / "copy"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", place, folder=copy)
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        archive.extractall(place, filter="data")
    return next(path for path in place.iterdir() if path.name.startswith("regard-") and path.is_dir())


def wheel(source: Path, place: Path, **environment: str) -> Path:
    """The wheel that pip makes, unpacked."""
    tree = Path(shutil.copytree(source, place / "tree"))
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", place)
    run(sys.executable, "-m", "pip", "wheel", *options, tree, folder=place, **environment)
    shutil.unpack_archive(next(place.glob("*.whl")), place / "wheel", "zip")
    return place / "wheel"


def engine(wheel: Path) -> list[str]:
    """What a fresh Python says of the engine in a wheel: its instructions, why there is none; and training's."""
    program = (
        "from regard.decoding.native.compiled_library import instructions, reason_unavailable\n"
        "from regard.model.kernels.fused import library\n"
        "print(instructions(), reason_unavailable(), getattr(library(), 'instructions', ''), sep=';')"
    )
    return run(sys.executable, "-c", program, folder=wheel, PYTHONPATH=str(wheel)).strip().split(";")


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="there is no compiler")
def test_a_wheel_carries_the_engine(source: Path, tmp_path: Path) -> None:
    made = wheel(source, tmp_path)
    names = sorted(path.name.split(".")[0] + path.suffix for path in (made / NATIVE).iterdir() if path.is_file())
    assert [name for name in names if not name.endswith(".py")] == ["core.so"]
    assert [path.name.split(".")[0] for path in (made / "regard" / "model" / "kernels").glob("*.so")] == ["fused_core"]
    assert not [path for path in (made / "regard" / "model").iterdir() if path.suffix in (".cpp", ".h")]
    used, why, training = engine(made)
    assert used in ("portable", "avx2", "avx512")
    assert training in ("portable", "avx2", "avx512")
    assert why == "None"


@pytest.mark.parametrize("compiler", ["false", pytest.param("/no/such/compiler", marks=pytest.mark.slow)])
def test_without_a_compiler_it_installs_all_the_same(source: Path, tmp_path: Path, compiler: str) -> None:
    made = wheel(source, tmp_path, CC=compiler, CXX=compiler)
    assert not list(made.rglob("*.so"))
    assert (made / NATIVE / "compiled_library.py").is_file()
    assert engine(made) == ["", "it was not built: no C++17 compiler was available when Regard was installed", ""]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "file",
    [
        f"{NATIVE}python_interface.cpp",
        f"{NATIVE}arithmetic_kernels.cpp",
        "regard/model/kernels/fused_training_steps.cpp",
    ],
)
def test_the_sources_are_plain_cpp(compiler: str, file: str) -> None:
    """For any 64-bit machine, without a warning."""
    baseline = ["-march=x86-64"] if os.uname().machine == "x86_64" else []
    options = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-DREGARD_KERNELS=portable"]
    run(compiler, *options, *baseline, ROOT / "src" / file, folder=ROOT)
