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

from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError
from regard.jobs.resumable_shards import TRIES, MakeShard, ShardInput, ShardOutput, Work, lost_workers

ERRORS = {kind.__name__: kind for kind in (DataError, InputError, ModelError, SettingsError)}


class WorkerProcesses:
    """Makes shards in processes of this machine; one that dies is replaced, and its shard is made again."""

    def __init__(self, count: int, threads: int = 1) -> None:
        self.count = count
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": "1"}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by the threads that talk to them
        self.stopping = False

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, ShardOutput], None, None]:
        """Yields outputs as soon as they are ready; reads one shard more than there are processes."""
        waiting: set[Future[tuple[int, ShardOutput]]] = set()
        self.stopping = False
        with closing(self), ThreadPoolExecutor(self.count) as threads:
            try:
                for shard in shards:
                    waiting.add(threads.submit(self.make, work, shard))
                    if len(waiting) > self.count:
                        yield from first_outputs(waiting)
                while waiting:
                    yield from first_outputs(waiting)
            finally:
                self.stopping = True
                for process in list(self.processes.values()):
                    process.kill()

    def make(self, work: Work, shard: ShardInput) -> tuple[int, ShardOutput]:
        """Makes a shard in the process of this thread; raises the error that the process reports."""
        for _ in range(TRIES):
            if self.stopping:
                break
            process = self.process(work)
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                send(process.stdin, {"number": shard.number, "first": shard.first}, shard.data)
                answer = receive(process.stdout)
            except (OSError, EOFError, ValueError):
                end(process)
                continue
            return shard.number, unpack_answer(*answer)
        if self.stopping:
            raise InterruptedError
        raise lost_workers(shard, describe_end(process.returncode))

    def process(self, work: Work) -> subprocess.Popen[bytes]:
        """Returns the process of this thread, a new one if there is none or it has died."""
        key = threading.get_ident()
        process = self.processes.get(key)
        if process is not None and process.poll() is not None:  # killed between two shards
            end(process)
            process = None
        if process is None:
            process = self.processes[key] = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-m", __name__, type(work).__module__, type(work).__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
            )
            assert process.stdin is not None
            with suppress(OSError):  # it is dead already: the next to write to it notices
                process.stdin.write(json.dumps(asdict(work)).encode() + b"\n")
        return process

    def close(self) -> None:
        """Kills the processes."""
        for process in self.processes.values():
            end(process)


def first_outputs(waiting: set[Future[tuple[int, ShardOutput]]]) -> Iterator[tuple[int, ShardOutput]]:
    """Takes those that are ready first out of `waiting`, and yields outputs before it raises an error."""
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    waiting -= done
    yield from (future.result() for future in sorted(done, key=lambda future: future.exception() is not None))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # the pipe may hold bytes that were never read
            assert pipe is not None
            pipe.close()


def describe_end(code: int | None) -> str:
    """-9 -> killed by the system, which had no memory left?"""
    if code is not None and code < 0:
        return "killed by the system, which had no memory left?" if -code == signal.SIGKILL else f"signal {-code}"
    return f"exit code {code}"


def count_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Messages, and the side of the worker


def send(stream: BinaryIO | Any, about: dict[str, Any], data: bytes) -> None:
    stream.write(json.dumps({**about, "bytes": len(data)}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> tuple[dict[str, Any], bytes]:
    """Reads the next message; raises EOFError if the stream ends before the message does."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    about = json.loads(line)
    size = about.pop("bytes")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return about, data


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
        raise ERRORS.get(about["kind"], RegardError)(about["error"])
    return ShardOutput(data, about["about"])


def serve(module: str, name: str) -> NoReturn:
    """Makes the shards that come on standard input until it ends; the first line has the fields of the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that sends the shards
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with answers
    kind: type[Work] = getattr(import_module(module), name)
    make: MakeShard | None = None
    fields = json.loads(source.readline() or b"{}")
    while True:
        try:
            about, data = receive(source)
        except EOFError:
            sys.exit()
        try:
            make = make or kind(**fields).start()
            answer = pack_answer(make, ShardInput(about["number"], about["first"], data))
        except RegardError as error:
            answer = pack_error(error)
        send(answers, *answer)


if __name__ == "__main__":
    serve(*sys.argv[1:])
