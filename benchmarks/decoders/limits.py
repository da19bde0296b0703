"""Limits of the machine: products at its best rate for batches, bytes of weights over its bandwidth for one sentence.

`python -m benchmarks.decoders.limits THREADS MIB...` measures how fast blocks of these sizes are read.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.program import run_json

SECONDS_PER_BLOCK = 1.0
MEMORY_MIB = 1024  # far beyond any cache
BYTES = {"float32": 4, "int8": 1}


@dataclass(frozen=True)
class Shape:
    """The sizes of a translator that determine its work; source, target and output share one table."""

    width: int
    hidden: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int

    @property
    def encoder_weights(self) -> int:
        """Counts the weights used once a source token: the encoder, and the keys and values for the decoder."""
        layer = 4 * self.width**2 + 2 * self.width * self.hidden
        return self.encoder_layers * layer + self.decoder_layers * 2 * self.width**2

    @property
    def decoder_weights(self) -> int:
        """Counts the weights used once an output token: layers (of cross-attention queries and output), and logits."""
        layer = 6 * self.width**2 + 2 * self.width * self.hidden
        return self.decoder_layers * layer + self.width * self.vocabulary

    def operations(self, source: int, target: int, beam: int) -> float:
        """Counts the operations of one sentence: two for each weight that a token uses, and those of attention."""
        written = target * (target + 1) / 2 + target * source  # looks at what was written and at the source
        looks = self.encoder_layers * source**2 + beam * self.decoder_layers * written
        weights = self.encoder_weights * source + beam * self.decoder_weights * target
        return 2 * weights + 4 * self.width * looks

    def weight_bytes(self, target: int, precision: str) -> float:
        """Returns the bytes read for one sentence alone: the encoder once, the decoder for every token."""
        return BYTES[precision] * (self.encoder_weights + target * self.decoder_weights)


Lengths = Sequence[tuple[int, int]]
"""Source and output tokens of sentences, ends included."""


def batch_limit(shape: Shape, lengths: Lengths, beam: int, gflops: float, faster: float = 1.0) -> float:
    """Returns sentences a second if all time went into products; `faster` is int8's rate over float32's."""
    operations = sum(shape.operations(source, target, beam) for source, target in lengths)
    return len(lengths) * gflops * faster * 1e9 / operations


def single_limit(shape: Shape, lengths: Lengths, precision: str, gigabytes: float) -> tuple[float, float]:
    """Returns milliseconds, median and 95th percentile, if all time went into reading weights."""
    times = [shape.weight_bytes(target, precision) / (gigabytes * 1e9) * 1e3 for _, target in lengths]
    return statistics.median(times), percentile(times, 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def int8_rate(flags: Sequence[str]) -> float:
    """Estimates from the processor's instructions how many times faster int8 products are than float32 ones."""
    return 4.0 if any("vnni" in flag for flag in flags) else 2.0


def measure_bandwidth(threads: int, blocks: Sequence[int]) -> dict[str, float]:
    """Returns the GB a second at which blocks of these MiB are read again and again."""
    command = [sys.executable, "-m", "benchmarks.decoders.limits", str(threads), *map(str, blocks)]
    found: dict[str, float] = run_json(command, "bandwidth", timeout=60 + 10 * len(blocks))
    return found


def main() -> None:
    import torch

    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({mib: best_rate(int(mib), torch) for mib in sys.argv[2:]}))


def best_rate(mib: int, torch: Any) -> float:
    """Returns the GB/s of the fastest sum or matrix-vector product over a block."""
    block = torch.ones(mib * 256, 1024)
    vector, fastest = torch.ones(1024), float("inf")
    deadline = time.perf_counter() + SECONDS_PER_BLOCK
    rounds = 0
    while time.perf_counter() < deadline or rounds < 3:
        for read in (block.sum, lambda: block @ vector):
            began = time.perf_counter()
            read()
            fastest = min(fastest, time.perf_counter() - began)
        rounds += 1
    return float(mib * (1 << 20) / fastest / 1e9)


if __name__ == "__main__":
    main()
