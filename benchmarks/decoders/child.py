"""The other side of serve.py: a process that is asked, and that never outlives us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.decoders.adapters import Job
from benchmarks.training import ROOT, BenchmarkError

CLEAN = ("MALLOC_", "CT2_", "MKL_", "ONEDNN_", "DNNL_", "OMP_", "KMP_", "PYTHONDONTWRITEBYTECODE")
"""What the shell says of these would tune one engine unseen, or make it compile its own modules at each start."""


class Child:
    """A process that serves an engine; `log` is what it writes to standard error."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEAN)}
        self.log = log
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=ROOT,
                env=kept | (environment or {}),
                start_new_session=True,
            )

    def ask(self, do: str, timeout: float = 1800, **arguments: Any) -> dict[str, Any]:
        """The answer to a command; that there is none, or an error, is an error here."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        clock = threading.Timer(timeout, self.kill)
        clock.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            clock.cancel()
        if not line:
            raise BenchmarkError(f"{self.fate(do)} ({self.log})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(answer["error"])
        return answer

    def fate(self, do: str) -> str:
        """Why there is no answer."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"{do}: killed, for want of time or memory"
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{do}: {how}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self.process.wait(timeout=5)  # the end of its input is the end of its work
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()


def serve(job: Job, logs: Path, environment: dict[str, str] | None = None) -> Child:
    """A process for a job, not yet loaded."""
    command = [sys.executable, "-m", "benchmarks.decoders.serve", json.dumps(asdict(job))]
    # The engines are told their threads by their own calls; of the tokenizers, only this tells.
    threads = {"RAYON_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "true"}
    return Child(command, logs / f"decoding-{job.engine}.log", threads | (environment or {}))
