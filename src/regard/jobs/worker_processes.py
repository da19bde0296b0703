"""Processes that do one job after another: a line of JSON and some bytes in, a line of JSON and some bytes out.

Not `multiprocessing`, which runs the main program of whoever calls Regard again in each process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from typing import Any, BinaryIO, NamedTuple, NoReturn

from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError

TRIES = 3
"""How often a job is given to a process before it is said that none can do it."""
ERRORS = {kind.__name__: kind for kind in (DataError, InputError, ModelError, SettingsError)}


class Message(NamedTuple):
    """A job, or the answer to one."""

    about: dict[str, Any]
    data: bytes = b""


class Workers:
    """Processes of a module that calls `serve`; one that dies is replaced, and its job is done again."""

    def __init__(
        self, module: str, setup: Mapping[str, Any], count: int, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.module, self.setup, self.count = module, json.dumps(setup), count
        self.environment = {**os.environ, **(environment or {})}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by the threads that talk to them
        self.stopping = False

    def run(self, jobs: Iterable[Message]) -> Generator[Message, None, None]:
        """The answers, in the order in which they are ready; one job more than there are processes is held."""
        waiting: set[Future[Message]] = set()
        with closing(self), ThreadPoolExecutor(self.count) as threads:
            try:
                for job in jobs:
                    waiting.add(threads.submit(self.answer, job))
                    if len(waiting) > self.count:
                        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                        yield from (each.result() for each in done)
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in done)
            finally:
                self.stopping = True
                for process in list(self.processes.values()):
                    process.kill()

    def answer(self, job: Message) -> Message:
        """What a process of this thread answers; what it refuses is raised here."""
        for _ in range(TRIES):
            if self.stopping:
                break
            process = self.process()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                send(process.stdin, job)
                found = receive(process.stdout)
            except (OSError, EOFError, ValueError):
                end(process)
                continue
            return refused(found)
        if self.stopping:
            raise InterruptedError
        raise DataError(
            f"a process that was to do {job.about} ended {TRIES} times ({how_it_ended(process.returncode)}): "
            "what is done is kept; try again with fewer processes, each of which needs memory"
        )

    def process(self) -> subprocess.Popen[bytes]:
        """The process of this thread, a new one where it has died."""
        key = threading.get_ident()
        found = self.processes.get(key)
        if found is not None and found.poll() is not None:  # killed between two jobs
            end(found)
            found = None
        if found is None:
            found = self.processes[key] = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
            )
            assert found.stdin is not None
            try:
                found.stdin.write(self.setup.encode() + b"\n")
            except OSError:  # it is dead already, which whoever talks to it will see
                return found
        return found

    def close(self) -> None:
        """Ends the processes, whatever they do."""
        for process in self.processes.values():
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process, and closes what led to it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was still to be written to it
            assert pipe is not None
            pipe.close()


def refusal(error: RegardError) -> Message:
    """What a process answers that cannot do its job by no fault of its own."""
    return Message({"error": str(error), "kind": type(error).__name__})


def refused(answer: Message) -> Message:
    """The answer; if it is a refusal, that is raised."""
    if "error" in answer.about:
        raise ERRORS.get(answer.about["kind"], RegardError)(answer.about["error"])
    return answer


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def how_it_ended(code: int | None) -> str:
    """The end of a process in words."""
    if code is not None and code < 0:
        killed = " by the system, which had no memory left?" if -code == signal.SIGKILL else ""
        return f"killed{killed or f' by signal {-code}'}"
    return f"exit code {code}"


def send(stream: BinaryIO | Any, message: Message) -> None:
    stream.write(json.dumps({**message.about, "bytes": len(message.data)}).encode() + b"\n")
    stream.write(message.data)
    stream.flush()


def receive(stream: BinaryIO | Any) -> Message:
    """The next message; EOFError where nobody is there any more."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    about = json.loads(line)
    data = stream.read(about.pop("bytes"))
    return Message(about, data)


Work = Callable[[Message], Message]


def serve(start: Callable[[dict[str, Any]], Work]) -> NoReturn:
    """Does what comes on standard input until it ends; `start` makes of the first line what does a job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who gave the jobs
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    work: Work | None = None
    setup = json.loads(source.readline() or b"{}")
    while True:
        try:
            job = receive(source)
        except EOFError:
            sys.exit()
        try:
            work = work or start(setup)
            answer = work(job)
        except RegardError as error:
            answer = refusal(error)
        send(answers, answer)
