"""Worker processes that make one shard after another: a line of JSON and some bytes in, the same out.

Not `multiprocessing`, which would run the caller's main program again in each process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import asdict
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

from regard import errors
from regard.errors import RegardError
from regard.jobs.resumable_shards import TRIES, MakeShard, ShardInput, ShardOutput, Work, lost_workers


class WorkerProcesses:
    """Makes shards in processes of this machine; one that dies is replaced, and its shard is made again."""

    def __init__(self, count: int, threads: int = 1) -> None:
        self.count = count
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": "1"}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by the thread that talks to them
        self.stopping = False

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, ShardOutput], None, None]:
        """Yields outputs as soon as they are ready; reads one shard more than there are processes."""
        waiting: set[Future[tuple[int, ShardOutput]]] = set()
        self.stopping = False
        with closing(self), ThreadPoolExecutor(self.count) as threads:
            try:
                for shard in shards:
                    waiting.add(threads.submit(self._make, work, shard))
                    if len(waiting) > self.count:
                        yield from _first_outputs(waiting)
                while waiting:
                    yield from _first_outputs(waiting)
            finally:
                self.stopping = True
                for process in list(self.processes.values()):
                    process.kill()

    def _make(self, work: Work, shard: ShardInput) -> tuple[int, ShardOutput]:
        """Makes a shard in the process of this thread; raises the error that the process reports."""
        for _ in range(TRIES):
            if self.stopping:
                raise InterruptedError
            process = self.process(work)
            try:
                send(process.stdin, {"number": shard.number, "first": shard.first}, shard.data)
                return shard.number, unpack_answer(*receive(process.stdout))
            except (OSError, EOFError, ValueError):
                _end(process)
        if self.stopping:
            raise InterruptedError
        code = process.returncode or 0
        raise lost_workers(shard, _NO_MEMORY if code == -signal.SIGKILL else f"exit code {code}")

    def process(self, work: Work) -> subprocess.Popen[bytes]:
        """Returns the process of this thread, a new one if there is none or it has died."""
        process = self.processes.get(threading.get_ident())
        if process is not None and process.poll() is None:
            return process
        if process is not None:  # killed between two shards
            _end(process)
        process = self.processes[threading.get_ident()] = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", __name__, type(work).__module__, type(work).__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
        )
        with suppress(OSError):  # it is dead already: the next to write to it notices
            send(process.stdin, asdict(work), b"")
        return process

    def close(self) -> None:
        """Kills the processes."""
        for process in self.processes.values():
            _end(process)


_NO_MEMORY = "killed by the system: perhaps no memory was left"


def _first_outputs(waiting: set[Future[tuple[int, ShardOutput]]]) -> Iterator[tuple[int, ShardOutput]]:
    """Removes the first finished futures from `waiting`, and yields outputs before it raises an error."""
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    waiting -= done
    yield from (future.result() for future in sorted(done, key=lambda future: future.exception() is not None))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # the pipe may hold bytes that were never read
            assert pipe is not None
            pipe.close()


def count_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Messages


def send(stream: BinaryIO | Any, about: dict[str, Any], data: bytes) -> None:
    """Writes a message: a line of JSON with the number of bytes, and the bytes."""
    stream.write(json.dumps({"about": about, "bytes": len(data)}).encode() + b"\n" + data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> tuple[dict[str, Any], bytes]:
    """Reads the next message; raises EOFError if the stream ends before the message does."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    head = json.loads(line)
    data = stream.read(head["bytes"])
    if len(data) < head["bytes"]:
        raise EOFError
    return head["about"], data


def pack_answer(make: MakeShard, shard: ShardInput) -> tuple[dict[str, Any], bytes]:
    """Makes a shard, and packs its output, or an error of the user's, as a message."""
    try:
        *_, output = make(shard)
    except RegardError as error:
        return pack_error(error)
    assert isinstance(output, ShardOutput)
    return {"about": output.about}, output.data


def pack_error(error: RegardError) -> tuple[dict[str, Any], bytes]:
    return {"error": str(error), "kind": type(error).__name__}, b""


def unpack_answer(about: dict[str, Any], data: bytes) -> ShardOutput:
    """Returns the output in a message; raises the error in it."""
    if "error" in about:
        raise getattr(errors, about["kind"], RegardError)(about["error"])
    return ShardOutput(data, about["about"])


def serve(module: str, name: str) -> NoReturn:
    """Makes the shards that come on standard input until it ends; the first message has the fields of the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that sends the shards
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with answers
    make: MakeShard | None = None
    with suppress(EOFError):
        fields, _ = receive(source)
        while True:
            about, data = receive(source)
            try:
                make = make or getattr(import_module(module), name)(**fields).start()
                answer = pack_answer(make, ShardInput(about["number"], about["first"], data))
            except RegardError as error:
                answer = pack_error(error)
            send(answers, *answer)
    sys.exit()


if __name__ == "__main__":
    serve(*sys.argv[1:])
