from __future__ import annotations

from collections.abc import Iterator

import pytest

from regard.decoding.native.compiled_library import missing


@pytest.fixture(autouse=True, scope="session")
def engine() -> None:
    """Where no compiler was, there is nothing to test."""
    if reason := missing():
        pytest.skip(f"the native engine is not there: {reason}")


@pytest.fixture(autouse=True, scope="package")
def teams() -> Iterator[None]:
    """The threads of a team share toys too, and their output layer is screened, which a small model is not worth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.decoding.native.native_search.WORTH_SHARING", 0)
        patch.setattr("regard.decoding.native.weight_packing.WORTH_SCREENING", 0)
        yield
