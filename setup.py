"""Builds the native engine where a C++17 compiler is; without one Regard installs too, and decodes in PyTorch."""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = "src/regard/decoding/native"
FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fvisibility-inlines-hidden", "-Wno-psabi", "-pthread"]
INSTRUCTIONS = {"portable": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTIONS |= {
        "avx2": ["-mavx2", "-mfma"],
        "avx512": [
            *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma"),
            *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # which GCC says of its own header
        ],
    }


class BuildNative(build_ext):
    """Compiles kernels.cpp once for each set of instructions; the library is no module of Python, ctypes loads it."""

    def build_extension(self, extension: Extension) -> None:
        place = Path(self.build_temp)
        objects = self.compiler.compile([f"{HERE}/core.cpp"], str(place / "core"), extra_postargs=FLAGS)
        for name, flags in INSTRUCTIONS.items():
            objects += self.compiler.compile(
                [f"{HERE}/kernels.cpp"], str(place / name), [("REGARD_KERNELS", name)], extra_postargs=FLAGS + flags
            )
        target = self.get_ext_fullpath(extension.name)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, target, extra_postargs=["-pthread"], target_lang="c++")


setup(
    ext_modules=[
        Extension(
            "regard.decoding.native.core",
            [f"{HERE}/core.cpp", f"{HERE}/kernels.cpp"],
            depends=sorted(str(header) for header in Path(HERE).glob("*.h")),  # which belong to a source distribution
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildNative},
    exclude_package_data={"": ["*.cpp", "*.h"]},
)
