"""Finds the fastest way to run CTranslate2 on this machine, for each model, precision and workload.

Every way is tried in a process of its own on some of the sentences, so that no measured process carries its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.program import BenchmarkError

BATCHES = (32, 64, 128)  # sentences, greedy; with a beam, half as many
AGAIN = 2  # of the fastest ways are tried once more
ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"CT2_FORCE_CPU_ISA": "AVX512", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1"},  # AVX-512 with VNNI, without AMX
    {"CT2_USE_MKL": "0"},  # oneDNN in place of MKL
)


@dataclass(frozen=True)
class Way:
    """Settings of CTranslate2: workers, the threads of each, the sentences of a batch, and environment variables."""

    workers: int
    threads: int
    batch: int = 64
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        variables = "".join(f", {name}={value}" for name, value in self.environment.items())
        return f"{self.workers} × {self.threads} threads, batch {self.batch}{variables}"

    @property
    def options(self) -> dict[str, int]:
        return {"workers": self.workers, "threads": self.threads, "batch": self.batch}

    def record(self) -> dict[str, Any]:
        return asdict(self)


def splits(threads: int) -> list[tuple[int, int]]:
    """Returns workers and the threads of each that together use all threads."""
    return [(workers, threads // workers) for workers in range(1, threads + 1) if threads % workers == 0]


def batch_ways(threads: int, beam: int) -> list[Way]:
    batches = [batch if beam == 1 else batch // 2 for batch in BATCHES]
    return [Way(workers, each, batch) for workers, each in splits(threads) for batch in batches]


def single_ways(threads: int) -> list[Way]:
    """Returns ways for one sentence: a second worker has nothing to do, and a second thread may be slower."""
    return [Way(1, each) for each in sorted({1, threads})]


def tune(ways: Sequence[Way], attempt: Callable[[Way], float]) -> tuple[Way, list[dict[str, Any]]]:
    """Returns the fastest of these ways, in its fastest environment, and all trials.

    `attempt` returns the seconds that a way takes, or raises BenchmarkError.
    """
    tried: list[dict[str, Any]] = []

    def seconds(way: Way) -> float:
        try:
            found = attempt(way)
        except BenchmarkError as error:
            tried.append({**way.record(), "error": str(error)})
            return float("inf")
        tried.append({**way.record(), "seconds": found})
        return found

    fastest = sorted((seconds(way), number) for number, way in enumerate(ways))[:AGAIN]
    best = min((min(before, seconds(ways[number])), number) for before, number in fastest)
    chosen = ways[best[1]]
    others = [Way(chosen.workers, chosen.threads, chosen.batch, each) for each in ENVIRONMENTS[1:]]
    times = [best[0], *(seconds(way) for way in others)]
    if min(times) == float("inf"):
        raise BenchmarkError(f"CTranslate2 does not run in any way: {tried[0]['error']}")
    return [chosen, *others][times.index(min(times))], tried
