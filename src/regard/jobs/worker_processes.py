"""Processes shards in worker processes, which communicate by messages of one line of JSON followed by bytes.

`multiprocessing` is not used because it would run the caller's main program again in each process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

from regard.jobs.resumable_shards import (
    TRIES,
    Message,
    ShardInput,
    ShardMaker,
    ShardOutput,
    Work,
    lost_workers,
    make_in_threads,
    output_in,
)


class WorkerProcesses:
    """Processes shards in processes on this machine; if one dies, it is replaced and its shard processed again."""

    def __init__(self, count: int, threads: int = 1) -> None:
        self.count = count
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": "1"}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # keys: ids of the threads that use them
        self.stopping = False

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, ShardOutput], None, None]:
        """Yields outputs as soon as they are ready."""
        self.stopping = False
        with closing(self):
            yield from make_in_threads(partial(self._make, work), shards, self.count, self._stop)

    def _stop(self) -> None:
        """Kills the processes, so that no thread keeps waiting for them."""
        self.stopping = True
        for process in list(self.processes.values()):
            process.kill()

    def _make(self, work: Work, shard: ShardInput) -> ShardOutput:
        """Processes a shard in this thread's process; raises the error that the process reports."""
        for _ in range(TRIES):
            if self.stopping:
                raise InterruptedError
            process = self.process(work)
            try:
                send(process.stdin, {"number": shard.number, "first": shard.first}, shard.data)
                return output_in(receive(process.stdout))
            except (OSError, EOFError, ValueError):
                _end(process)
        if self.stopping:
            raise InterruptedError
        code = process.returncode or 0
        raise lost_workers(shard, _NO_MEMORY if code == -signal.SIGKILL else f"exit code {code}")

    def process(self, work: Work) -> subprocess.Popen[bytes]:
        """Returns the process of this thread; starts one if it is missing or has died."""
        process = self.processes.get(threading.get_ident())
        if process is not None and process.poll() is None:
            return process
        if process is not None:  # it was killed between two shards
            _end(process)
        process = self.processes[threading.get_ident()] = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", __name__, type(work).__module__, type(work).__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
        )
        with suppress(OSError):  # if it has already died, the next write will notice
            send(process.stdin, asdict(work), b"")
        return process

    def close(self) -> None:
        for process in self.processes.values():
            _end(process)


_NO_MEMORY = "killed by the system, probably because it ran out of memory"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # the pipe may still contain unsent bytes
            assert pipe is not None
            pipe.close()


# Messages


def send(stream: BinaryIO | Any, about: dict[str, Any], data: bytes) -> None:
    """Writes a message: a line of JSON, which includes the number of bytes, followed by the bytes."""
    stream.write(json.dumps({"about": about, "bytes": len(data)}).encode() + b"\n" + data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> Message:
    """Reads the next message; raises EOFError if the stream ends too early."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    head = json.loads(line)
    data = stream.read(head["bytes"])
    if len(data) < head["bytes"]:
        raise EOFError
    return head["about"], data


def serve(module: str, name: str) -> NoReturn:
    """Processes shards from standard input until it ends; the first message contains the fields of the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps output of libraries out of the messages
    with suppress(EOFError):
        fields, _ = receive(source)
        maker = ShardMaker(getattr(import_module(module), name)(**fields))
        while True:
            about, data = receive(source)
            send(answers, *maker.make(ShardInput(about["number"], about["first"], data)))
    sys.exit()


if __name__ == "__main__":
    serve(*sys.argv[1:])
