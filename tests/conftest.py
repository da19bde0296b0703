from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.examples import EXAMPLES

# Some virtual machines say that they have AMX and then kill who uses it, as PyTorch's bfloat16 products do.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Side by side, each test has a core, and so have processes that it starts: threads would wait for those of the other.
BESIDE_OTHERS = "PYTEST_XDIST_WORKER" in os.environ
if BESIDE_OTHERS:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile(
    "regard",
    deadline=None,  # the first example pays for warming up; a shared machine stalls
    max_examples=EXAMPLES,
    derandomize=True,  # a failure is the change's doing, not the draw's
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},  # which takes minutes through torch
)
hypothesis.settings.register_profile(  # for `make slow`: other examples each time, ten times as many
    "random",
    hypothesis.settings.get_profile("regard"),
    max_examples=10 * EXAMPLES,
    derandomize=False,
    print_blob=True,  # of a failure: the line that repeats it
)
hypothesis.settings.load_profile("regard")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """How many threads a training in this process has set is not for the next test."""
    yield
    if BESIDE_OTHERS and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What `regard demo` makes and prints, in some three minutes; for slow tests, and nobody changes it."""
    folder = tmp_path_factory.mktemp("runs") / "demo"
    command = [sys.executable, "-m", "regard", "demo", "-o", str(folder)]
    return folder, subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout
