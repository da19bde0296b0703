from __future__ import annotations

import pytest

from regard.decoding.native.library import missing


@pytest.fixture(autouse=True, scope="session")
def engine() -> None:
    """Where no compiler was, there is nothing to test."""
    if reason := missing():
        pytest.skip(f"the native engine is not there: {reason}")
