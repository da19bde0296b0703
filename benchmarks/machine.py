"""Describes the machine of a run; `python -m benchmarks.machine THREADS` measures its matrix products."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

PRODUCTS = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 512, 2048)]
SECONDS_PER_PRODUCT = 1.0


def describe_machine() -> dict[str, Any]:
    names = cpu_lines("model name")
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def cpu_flags() -> list[str]:
    """Returns the instruction sets of this processor that matrix products can use."""
    return [flag for line in cpu_lines("flags")[:1] for flag in line.split() if flag.startswith(("avx", "amx", "fma"))]


def cpu_lines(name: str) -> list[str]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]


def best_product_rate(rows: int, inner: int, columns: int) -> float:
    """Returns the GFLOP/s of the fastest of repeated float32 products into one buffer."""
    import torch

    left, right, out = torch.randn(rows, inner), torch.randn(inner, columns), torch.empty(rows, columns)
    fastest = float("inf")
    deadline = time.perf_counter() + SECONDS_PER_PRODUCT
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * rows * inner * columns / fastest / 1e9


def main() -> None:
    import torch

    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({"gflops": max(best_product_rate(*shape) for shape in PRODUCTS)}))


if __name__ == "__main__":
    main()
