"""Builds the native engine and the training kernels if a C++17 compiler is available; without them PyTorch does all."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = "src/regard"
FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fvisibility-inlines-hidden", "-Wno-psabi"]
if "-fsanitize" not in os.environ.get("CFLAGS", ""):
    FLAGS.append("-g0")  # Python's flags include debug symbols, which would be three quarters of the file
INSTRUCTIONS = {"portable": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTIONS |= {
        "avx2": ["-mavx2", "-mfma"],
        "avx512": [
            *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
            *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # GCC warns about its own header
        ],
    }


@dataclass(frozen=True)
class Library:
    """A C++ library: `kernels` is compiled once per instruction set, with its name as REGARD_KERNELS, `plain` once."""

    kernels: str
    plain: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    further: dict[str, list[str]] = field(default_factory=dict)  # flags by instruction set


THREADS = ["-fopenmp"] if sys.platform == "linux" else []  # PyTorch has loaded the same library before
LIBRARIES = {
    "regard.decoding.native.core": Library(
        "decoding/native/arithmetic_kernels.cpp",
        ["decoding/native/python_interface.cpp"],
        ["-pthread", "-ffp-contract=off"],  # the same bits on every set of instructions: see arithmetic_kernels.cpp
        {"avx512": ["-mavx512vnni"]},
    ),
    "regard.model.kernels.fused_core": Library("model/kernels/fused_training_steps.cpp", flags=THREADS),
}
HEADERS = sorted(
    str(header) for place in ("model/kernels", "decoding/native") for header in Path(HERE, place).glob("*.h")
)


class BuildNative(build_ext):
    """Builds libraries that are not Python modules: ctypes loads them."""

    def build_extension(self, extension: Extension) -> None:
        library, place = LIBRARIES[extension.name], Path(self.build_temp) / extension.name
        flags = [*FLAGS, *library.flags]
        plain = [f"{HERE}/{file}" for file in library.plain]
        objects = self.compiler.compile(plain, str(place), extra_postargs=flags) if plain else []
        for name, instruction_flags in INSTRUCTIONS.items():
            all_flags = [*flags, *instruction_flags, *library.further.get(name, [])]
            kernels, macros = [f"{HERE}/{library.kernels}"], [("REGARD_KERNELS", name)]
            objects += self.compiler.compile(kernels, str(place / name), macros, extra_postargs=all_flags)
        target = self.get_ext_fullpath(extension.name)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, target, extra_postargs=library.flags, target_lang="c++")


def extension(name: str, library: Library) -> Extension:
    files = [f"{HERE}/{file}" for file in (library.kernels, *library.plain)]
    return Extension(name, files, depends=HEADERS, optional=True)  # adds the headers to the source distribution


setup(
    ext_modules=[extension(name, library) for name, library in LIBRARIES.items()],
    cmdclass={"build_ext": BuildNative},
    exclude_package_data={"": ["*.cpp", "*.h"]},
)
