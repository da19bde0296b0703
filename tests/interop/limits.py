"""Runs a function in a process with limits, and measures the time and the memory that it takes."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

SECONDS, MEGABYTES = 2.0, 200
PAGE = resource.getpagesize()


def resident() -> int:
    """Bytes of memory that this process uses now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def measure(connection: Connection, call: Callable[[], object]) -> None:
    """Sends the error of a call, its seconds of computing, and the megabytes that it took at most."""
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (address_space + (3 << 30),) * 2)
    before, began, message = resident(), time.process_time(), ""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 (also a panic of Rust)
        message = f"{type(error).__name__}: {error}"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    connection.send((message, time.process_time() - began, (most - before) >> 20))


def run_limited(call: Callable[[], object]) -> str:
    """Returns the error of a call, which may take 2 seconds of computing and 200 MB; fails if it takes more."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender, call), daemon=True)
    process.start()
    sender.close()
    if not receiver.poll(60):
        process.kill()
        raise AssertionError("has not ended after a minute")
    try:
        message, seconds, megabytes = receiver.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"the process ended with {process.exitcode}") from None
    process.join()
    assert seconds < SECONDS, f"took {seconds:.1f} s: {message}"
    assert megabytes < MEGABYTES, f"took {megabytes} MB: {message}"
    return str(message)
