"""Fuzzing of the native engine: builds the harness with sanitizers, and runs libFuzzer, or random inputs without it.

python -m tests.fuzz.native load --seconds 3600    (make fuzz NATIVE=load)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus" / "native"
SOURCES = HERE.parents[1] / "src" / "regard" / "decoding" / "native"
FLAGS = ["-std=c++17", "-ffp-contract=off", "-Wno-psabi", "-pthread", "-D_GLIBCXX_ASSERTIONS"]
SANITIZED = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
KERNELS: dict[str, list[str]] = {
    "portable": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mavx512vnni"],
}
NEEDED = {"avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}}
"""What the system calls the instructions of each set of kernels."""


def available_kernels() -> list[str]:
    """Returns the sets of kernels whose instructions this machine has."""
    about = Path("/proc/cpuinfo")
    has = set(about.read_text().split()) if about.is_file() else set()
    return ["portable", *(name for name, needed in NEEDED.items() if needed <= has)]


def build(folder: Path, compiler: str, options: Sequence[str], kernels: Sequence[str]) -> Path:
    """Compiles the harness with these kernels, and returns the program."""
    absent = [f"-DWITHOUT_{name.upper()}" for name in NEEDED if name not in kernels]
    flags = [*FLAGS, *options, *absent, f"-I{SOURCES}"]
    sources: dict[str, list[str | Path]] = {
        name: [SOURCES / "arithmetic_kernels.cpp", f"-DREGARD_KERNELS={name}", *KERNELS[name]] for name in kernels
    }
    sources["harness"] = [HERE / "native_harness.cpp"]
    for name, arguments in sources.items():
        subprocess.run([compiler, *flags, "-c", *arguments, "-o", folder / f"{name}.o"], check=True)
    program = folder / "harness"
    subprocess.run([compiler, *flags, *(folder / f"{name}.o" for name in sources), "-o", program], check=True)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["load", "search"], help="load damaged models, or search with them too")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--inputs", type=int, default=-1)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for the program and what it finds")
    arguments = parser.parse_args()
    compiler = shutil.which("clang++")
    if compiler is None:
        raise SystemExit("clang++ is missing: apt-get install clang libclang-rt-14-dev")
    folder = arguments.folder / arguments.what
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    options = [*SANITIZED, "-fsanitize=fuzzer", f"-DSEARCH={int(arguments.what == 'search')}"]
    program = build(folder, compiler, options, available_kernels())
    limits = ["-timeout=60", "-rss_limit_mb=2500", "-malloc_limit_mb=600", "-max_len=600", "-print_final_stats=1"]
    times = [f"-max_total_time={arguments.seconds}", f"-runs={arguments.inputs}", f"-artifact_prefix={folder}/"]
    os.execv(program, [str(program), *limits, *times, str(folder / "corpus"), str(CORPUS)])  # noqa: S606


if __name__ == "__main__":
    main()
