"""Starts and asks a process that serves an engine (engine_server.py); it never outlives this one."""

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
from typing import Any

from benchmarks.decoders.adapters import Job
from benchmarks.program import ROOT, BenchmarkError

CLEARED = ("MALLOC_", "CT2_", "MKL_", "ONEDNN_", "DNNL_", "OMP_", "KMP_", "PYTHONDONTWRITEBYTECODE")
"""Variables of the shell that would tune one engine unseen, or make it compile its own modules at each start."""


class EngineProcess:
    """A process that serves an engine; its standard error goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
        self.log, pipes = log, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        options: dict[str, Any] = {**pipes, "encoding": "utf-8", "cwd": ROOT, "start_new_session": True}
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, stderr=errors, env=kept | (environment or {}), **options)

    def ask(self, do: str, timeout: float = 1800, **arguments: Any) -> dict[str, Any]:
        """Returns the answer to a command; raises BenchmarkError if there is none, or if it is an error."""
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
            raise BenchmarkError(f"{self.reason_of_end(do)} ({self.log})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(answer["error"])
        return answer

    def reason_of_end(self, do: str) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"{do}: killed, out of time or memory"
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{do}: {how}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self.process.wait(timeout=5)  # the end of its input is the end of its work
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()


def serve(job: Job, logs: Path, environment: dict[str, str] | None = None) -> EngineProcess:
    """Starts a process for a job, which has loaded nothing yet."""
    command = [sys.executable, "-m", "benchmarks.decoders.engine_server", json.dumps(asdict(job))]
    # The engines get their threads by their own calls; the tokenizers only by this variable.
    threads = {"RAYON_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "true"}
    return EngineProcess(command, logs / f"decoding-{job.engine}.log", threads | (environment or {}))
