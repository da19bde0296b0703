"""A short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import FILES, LARGE, enlarged, examine, fuzz


@pytest.mark.parametrize("name", FILES)
def test_what_is_whole_is_read(name: str, tmp_path: Path) -> None:
    assert examine(tmp_path / name, FILES[name]) == "read"


def test_what_is_damaged_is_refused_or_read() -> None:
    told: list[str] = []
    run = fuzz(300, 0, told.append)
    assert run.inputs >= 300
    assert set(run.outcomes) == {"read", "refused"}
    assert told


def test_a_large_input_is_a_file_with_a_repeated_token() -> None:
    content = enlarged(FILES["a.md"], Random(1))
    assert LARGE * 0.9 < len(content) < LARGE * 1.1
    assert content == enlarged(FILES["a.md"], Random(1))
