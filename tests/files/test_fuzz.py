"""A short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import FILES, examine, fuzz


@pytest.mark.parametrize("name", FILES)
def test_what_is_whole_is_read(name: str, tmp_path: Path) -> None:
    assert examine(tmp_path / name, FILES[name]) == "read"


def test_what_is_damaged_is_refused_or_read() -> None:
    told: list[str] = []
    run = fuzz(300, 0, told.append)
    assert run.inputs >= 300
    assert set(run.outcomes) == {"read", "refused"}
    assert told
