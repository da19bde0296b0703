"""Runs a server for hours: kills, new and damaged models, and hostile clients beside honest ones.

    make soak HOURS=1

Each honest answer is compared with the offline one. The report has availability, times, memory and wrong answers; the
exit code is 1 if an answer was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from regard.cli.load_generator import LoadReport, Question, load, question
from regard.cli.serving_benchmark import invent_sentences
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.demo import GLASS
from regard.model_folder import CANARY, WEIGHTS
from tests.serving import test_hostile as hostile

CLIENTS = 8
WINDOW = 2.0
"""Seconds after which honest clients connect again, which they cannot while a killed server starts."""
MARKDOWN = b"`a " * 30_000
MIB = 2**20


@dataclass
class SoakReport:
    """The results of a run."""

    honest: LoadReport = field(default_factory=LoadReport)
    events: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)  # bytes of the server, sampled
    starting: float = 0.0  # seconds in which no server was ready
    stopped_in: float = 0.0  # seconds between SIGTERM and the end

    def lines(self) -> list[str]:
        """Returns the report for people."""
        honest, failed = self.honest, self.honest.errors.total()
        answered = 100 * honest.answered / max(1, honest.asked)
        memory = [size / MIB for size in self.memory] or [0.0]
        return [
            f"honest        {honest.asked:,} requests, {answered:.3f} % answered correctly, {honest.wrong} wrong",
            f"lost          {failed} ({json.dumps(honest.errors)}); no server was ready for {self.starting:.1f} s",
            f"times         p50 {honest.quantile(0.5):.0f} ms, p99 {honest.quantile(0.99):.0f} ms",
            f"memory        {memory[0]:.0f} MiB at first, {memory[-1]:.0f} at last, {max(memory):.0f} at most",
            f"events        {json.dumps(self.events)}",
            f"SIGTERM       ended the server in {self.stopped_in:.1f} s",
        ]


class HostileClient:
    """Attacks from an address of its own."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self.port, self.source = port, f"127.0.0.{dice.randrange(2, 250)}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5, source_address=(self.source, 0))


def abandoned_uploads(client: HostileClient) -> list[socket.socket]:
    """Sends documents that take long to read, and leaves at once."""
    for _ in range(10):
        hostile.upload(client, MARKDOWN).close()  # type: ignore[arg-type]
    return []


ATTACKS: tuple[Callable[..., list[socket.socket]], ...] = (
    abandoned_uploads,
    hostile.slow_heads,
    hostile.slow_bodies,
    hostile.half_closed,
    hostile.cancelled,
    hostile.oversized,
    hostile.malformed,
    hostile.unread,
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def start_server(model: Path, files: Path, port: int) -> subprocess.Popen[bytes]:
    """Starts a server, and waits until it is ready."""
    command = [sys.executable, "-m", "regard", "serve", model, "--port", port, "--files", files]
    server = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while server.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                break
        time.sleep(0.05)
    return server


class Soak:
    """One run: a server that is replaced when it is killed, and threads that trouble it."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.model = Path(shutil.copytree(GLASS, folder / "model", ignore=shutil.ignore_patterns("native")))
        self.files, self.seed, self.report = folder / "files", seed, SoakReport()
        self.end, self.over, self.writing = time.monotonic() + seconds, threading.Event(), threading.Lock()
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}/"
        self.server = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts a server, and waits until it is ready."""
        started = time.monotonic()
        server = start_server(self.model, self.files, self.port)
        self.report.starting += time.monotonic() - started
        return server

    def run(self) -> SoakReport:
        texts = invent_sentences("en")[:100]
        translator = load_as(Translator, GLASS, threads=1)
        answers = [each.text for each in translator.translate(texts)]
        outputs = [each.text for each in translator.translate(texts[:8], beam=1)]
        examples = [{"source": text, "output": output} for text, output in zip(texts, outputs, strict=False)]
        (self.model / CANARY).write_text(json.dumps({"version": 1, "examples": examples}))
        bodies = [{"q": text, "source": "en", "target": "fr"} for text in texts]
        questions = [question(self.address, *pair) for pair in zip(bodies, answers, strict=True)]
        work = (self.attack, self.change_model, self.kill, self.sample_memory)
        threads = [threading.Thread(target=each, args=(random.Random(self.seed + n),)) for n, each in enumerate(work)]
        for thread in threads:
            thread.start()
        self.ask(questions)
        self.over.set()
        for thread in threads:
            thread.join()
        started = time.monotonic()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(120)
        self.report.stopped_in = time.monotonic() - started
        return self.report

    def ask(self, questions: list[Question]) -> None:
        """Sends honest requests until the time is over."""
        whole, number = self.report.honest, 0
        while time.monotonic() < self.end:
            number += 1
            part = load(self.address, questions, clients=CLIENTS, seconds=WINDOW, seed=number)
            for name in ("asked", "answered", "wrong", "refused", "elapsed", "errors", "seconds"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
            if part.refused:
                time.sleep(0.2)

    def attack(self, dice: random.Random) -> None:
        while not self.over.wait(dice.uniform(0.2, 2.0)):
            attack, stack = dice.choice(ATTACKS), ExitStack()
            with stack, suppress(OSError):
                for connection in attack(HostileClient(self.port, dice)):
                    stack.enter_context(connection)
                self.report.events[attack.__name__] += 1
                self.over.wait(dice.uniform(0.0, 5.0))

    def change_model(self, dice: random.Random) -> None:
        """Writes the weights again, or damaged ones for a while."""
        weights = (GLASS / WEIGHTS).read_bytes()
        while not self.over.wait(dice.uniform(5.0, 15.0)):
            damaged = bytearray(weights)
            if dice.random() < 0.5:
                for _ in range(3_000):
                    damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
            self.report.events["damaged weights" if damaged != weights else "weights written again"] += 1
            with self.writing:
                self.replace_weights(bytes(damaged))
                self.over.wait(8.0)
                self.replace_weights(weights)

    def replace_weights(self, content: bytes) -> None:
        (self.model / ".new").write_bytes(content)
        (self.model / ".new").replace(self.model / WEIGHTS)

    def kill(self, dice: random.Random) -> None:
        """Kills the server, and starts another."""
        while not self.over.wait(dice.uniform(40.0, 120.0)):
            with self.writing:  # a server is not started with damaged weights
                self.server.kill()
                self.server.wait()
                self.report.events["kills"] += 1
                self.server = self.start()

    def sample_memory(self, _dice: random.Random) -> None:
        while not self.over.wait(2.0):
            with suppress(OSError, IndexError):
                status = Path(f"/proc/{self.server.pid}/status").read_text()
                self.report.memory.append(1024 * int(status.partition("VmRSS:")[2].split()[0]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Soak(Path(folder), 3600 * arguments.hours, arguments.seed).run()
    print("\n".join(report.lines()))
    return int(report.honest.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
