"""Runs a short version of `make faults`, and checks the table of docs/faults.md."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.__main__ import BEGIN, END, LOG, PAGE
from tests.faults.faults import KINDS, Bench, Outcome, read_log, table

SHORT = {"killed_alone": 3, "killed_together": 1, "damaged_state": 2}
WITH_LAUNCHER = ("replaced", "preempted")
ENDED = ("killed_alone", "killed_together", "told_to_end", "read_only")
MOMENT = re.compile(r"after \d+\.\d\d s, (preparing|before the first state|past step \d+)")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as root:  # which others may look into, as they may not where pytest writes
        Path(root).chmod(0o755)
        yield Bench(Path(root) / "bench", seed=1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITH_LAUNCHER])
def test_a_disturbed_run_ends_like_an_undisturbed_one(kind: str, bench: Bench) -> None:
    outcomes = list(KINDS[kind](bench, SHORT.get(kind, 1)))
    assert len(outcomes) == SHORT.get(kind, 1)
    assert [each for each in outcomes if not each.continued or each.lost] == []
    if kind in ENDED:
        assert [each.when for each in outcomes if not MOMENT.fullmatch(each.when)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_LAUNCHER)
def test_a_worker_is_replaced(kind: str, bench: Bench) -> None:
    assert [each for each in KINDS[kind](bench, 1) if not each.continued or each.lost] == []


def test_the_page_has_the_table_of_the_log() -> None:
    outcomes = read_log(LOG)
    told = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert told == table(outcomes) + "\n"
    assert all(each.continued and not each.lost for each in outcomes)
    assert len({each.fault for each in outcomes}) >= 10


def test_the_table_counts_differing_weights() -> None:
    """The table counts the runs that did not continue and the bytes that differ."""
    bad = [Outcome("a", "", True, 0, 0.0), Outcome("a", "", False, 7, 2.5)]
    assert "| a | 2 | 1 | 7 | 2.5 s |" in table(bad)


def test_another_byte_counts_as_lost(bench: Bench) -> None:
    end = bench.end("one")
    other = bench.new()
    other.mkdir()
    data = bytearray((end / "weights.safetensors").read_bytes())
    data[-5] ^= 1
    (other / "weights.safetensors").write_bytes(data[:-2])
    assert bench.lost(other, "one") == 3
