from __future__ import annotations

from collections.abc import Iterator

import pytest

from regard.decoding.native.compiled_library import reason_unavailable


@pytest.fixture(autouse=True, scope="session")
def engine() -> None:
    """Skips these tests if the library was not compiled."""
    if reason := reason_unavailable():
        pytest.skip(f"the native engine is not there: {reason}")


@pytest.fixture(autouse=True, scope="package")
def teams() -> Iterator[None]:
    """Lets threads share toys, and screens their output layers, as is done for large models only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.decoding.native.native_search.WORTH_SHARING", 0)
        patch.setattr("regard.decoding.native.weight_packing.WORTH_SCREENING", 0)
        yield
