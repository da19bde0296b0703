"""A short run of each fuzzer; `make fuzz` is the long one. The corpus has inputs that once reached new code."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import all_names, examine, fuzz, random_input, sample
from tests.fuzz.coverage import CORPUS, GROUPS
from tests.fuzz.damage import LARGE, enlarged
from tests.fuzz.documents import DOCUMENTS
from tests.fuzz.model_files import model_files
from tests.fuzz.native import CORPUS as PLANS, SANITIZED, build

SOUND = [name for name in all_names() if name != "shortlist.safetensors"]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_is_read(name: str, tmp_path: Path) -> None:
    assert examine(tmp_path, name, sample(name)) == "read"


def test_what_is_damaged_is_refused_or_read() -> None:
    shown: list[str] = []
    run = fuzz(1_000, 0, shown.append, list(DOCUMENTS))
    assert run.inputs >= 1_000
    assert {"read", "refused"} <= set(run.outcomes)
    assert shown


def test_damaged_files_of_models_are_refused_or_can_be_used() -> None:
    run = fuzz(1_500, 0, lambda _: None, list(model_files()))
    assert run.inputs >= 1_500
    assert set(run.outcomes) == {"read", "refused"}


def test_inputs_depend_on_the_seed_alone() -> None:
    for name in all_names():
        inputs = [[random_input(name, random) for _ in range(3)] for random in (Random(7), Random(7))]
        assert inputs[0] == inputs[1], name


@pytest.mark.parametrize("path", sorted(path for path in CORPUS.glob("*/*") if path.parent != PLANS), ids=str)
def test_the_corpus_is_refused_or_read(path: Path, tmp_path: Path) -> None:
    assert examine(tmp_path, path.parent.name, path.read_bytes()) in ("read", "refused", "empty")


def test_a_large_input_is_a_file_with_a_repeated_token() -> None:
    content = enlarged(DOCUMENTS["a.md"], Random(1))
    assert LARGE * 0.9 < len(content) < LARGE * 1.1
    assert content == enlarged(DOCUMENTS["a.md"], Random(1))


def test_every_file_belongs_to_a_group() -> None:
    endings = tuple(ending for group in GROUPS.values() for ending in group)
    other = [name for name in all_names() if name not in DOCUMENTS and not name.endswith(endings)]
    assert other == []


COMPILER = shutil.which("clang++") or shutil.which("g++")


def replay(tmp_path: Path, options: list[str]) -> None:
    """Runs the harness of the native engine on its corpus, and on random inputs, without libFuzzer."""
    assert COMPILER is not None
    program = build(tmp_path, COMPILER, ["-DREPLAY", "-DSEARCH=1", "-w", *options], ["portable"])
    command = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []  # as old sanitizers need
    files = sorted(map(str, PLANS.glob("*")))
    done = subprocess.run([*command, program, "2000", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) >= 2000


needs_compiler = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="needs a C++ compiler, which the harness is built with"
)


@needs_compiler
def test_the_native_engine_withstands_damaged_models(tmp_path: Path) -> None:
    replay(tmp_path, ["-O0"])


@needs_compiler
@pytest.mark.slow
def test_the_native_engine_withstands_damaged_models_under_sanitizers(tmp_path: Path) -> None:
    replay(tmp_path, SANITIZED)
