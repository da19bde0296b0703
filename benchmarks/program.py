"""Shared by the programs: their flags, the folder for their files, and the processes that they start and end."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"
MULTI30K = Path("data/multi30k")

# glibc gives a freed block above 32 MiB (a batch's logits are 160 MB) back to the kernel at once, and faults
# its pages in again at the next step. Any user can tell it to keep them.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


class BenchmarkError(Exception):
    """A failure that the user can correct; the message has one line."""


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the flag that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "store the figures in docs/measured/ and update docs/benchmarks.md; default: yes"
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True, help=about)
    return parser


def add_data(parser: argparse.ArgumentParser, files: str) -> None:
    about = f"folder with Multi30k's {files}; default: {MULTI30K}, if it exists"
    parser.add_argument("--data", type=Path, required=not MULTI30K.is_dir(), default=MULTI30K, help=about)


def names_from(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    """Returns a parser of comma-separated names."""
    known = list(allowed)

    def names(text: str) -> list[str]:
        chosen = [name for name in text.split(",") if name]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return chosen

    return names


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def exit_on_terminate() -> None:
    """Turns SIGTERM into an exit, so that the processes that were started are ended as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


# Processes


def run(command: Sequence[str], log: str, timeout: float, environment: dict[str, str] | None = None) -> str:
    """Runs a command in a process group of its own, which never outlives this one, and returns its output."""
    path = BENCH / "logs" / f"{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    # A variant's environment is exactly its own: the shell's settings of malloc would change "as shipped".
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT, "start_new_session": True}
    with path.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stderr=errors, env=inherited | (environment or {}), **streams)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"took more than {timeout:.0f} s (.bench/logs/{log}.log)") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        written = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        reason = written[-1].strip()[:200] if written else f"exit status {process.returncode}"
        raise BenchmarkError(f"{reason} (.bench/logs/{log}.log)")
    return str(output)


def run_json(command: list[str], log: str, timeout: float, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Runs a command whose last line of output is a JSON object, and returns the object."""
    lines = run(command, log, timeout, environment).strip().splitlines()
    try:
        result: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise BenchmarkError(f"no result printed (.bench/logs/{log}.log)") from None
    return result


def measure_products(threads: int) -> float:
    """Returns the GFLOP/s of the best float32 matrix product that this torch reaches."""
    return float(run_json([sys.executable, "-m", "benchmarks.machine", str(threads)], "products", timeout=60)["gflops"])


def write_json(path: Path, value: Any) -> None:
    """Replaces the file whole, so that the last one survives a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def process_tree(root: int) -> dict[int, dict[str, str]]:
    """Returns /proc's status of a process and of all that it started, by their ids."""
    every: dict[int, dict[str, str]] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            every[int(path.parent.name)] = dict(line.split(":", 1) for line in path.read_text().splitlines())
    found = {root} & every.keys()
    while more := {pid for pid, status in every.items() if int(status["PPid"]) in found} - found:
        found |= more
    return {pid: every[pid] for pid in sorted(found)}
