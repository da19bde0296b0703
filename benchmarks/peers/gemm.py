"""The machine's own limit: the best float32 matrix product that this torch reaches, in GFLOP/s."""

import json
import sys
import time

import torch

SHAPES = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 512, 2048)]
SECONDS_PER_SHAPE = 1.0


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    sys.stdout.write(json.dumps({"gflops": max(best_rate(*shape) for shape in SHAPES)}) + "\n")


def best_rate(rows: int, inner: int, columns: int) -> float:
    """The fastest of repeated products; the result is written to one buffer, so nothing is allocated."""
    left, right, out = torch.randn(rows, inner), torch.randn(inner, columns), torch.empty(rows, columns)
    fastest = float("inf")
    deadline = time.perf_counter() + SECONDS_PER_SHAPE
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * rows * inner * columns / fastest / 1e9


if __name__ == "__main__":
    main()
