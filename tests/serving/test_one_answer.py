"""Each text has one answer, whatever shares its batch and whichever server translates it."""

from __future__ import annotations

import pytest

from regard.decoding.native.compiled_library import reason_unavailable
from tests.serving.one_answer import run


@pytest.mark.skipif(reason_unavailable() is not None, reason="the native engine is not available")
def test_each_text_has_one_answer_under_load() -> None:
    report = run(150, seed=7)
    assert not report.failures
    assert not report.different
    assert max(answers.total() for answers in report.answers.values()) > 1
