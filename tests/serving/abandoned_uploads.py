"""Measures 32 honest clients with and without 100 abandoned uploads beside them, and how fast SIGTERM ends the server.

    python -m tests.serving.abandoned_uploads --rounds 4

Windows with and without uploads alternate, so that other load of the machine disturbs both alike. Each upload is a
document of 10 MB that takes 14 seconds to read; its client leaves as soon as it is sent.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from regard.cli.load_generator import LoadReport, Question, load, question
from regard.cli.serving_benchmark import invent_sentences
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.demo import GLASS
from tests.serving import test_hostile as hostile
from tests.serving.soak import HostileClient, free_port, start_server

CLIENTS, UPLOADS, SENDERS = 32, 100, 4
WINDOW = 20.0
DOCUMENT = b"- [a](b) **c** `d`\n\n" * 490_000


def send_uploads(port: int, count: int, seed: int, sent: list[float]) -> None:
    """Sends documents one after the other, leaves when each is sent, and notes when."""
    dice = random.Random(seed)
    for _ in range(count):
        with suppress(OSError):
            hostile.upload(HostileClient(port, dice), DOCUMENT).close()  # type: ignore[arg-type]
            sent.append(time.monotonic())


@contextmanager
def uploading(port: int, seed: int) -> Iterator[list[float]]:
    """Sends all uploads while the block runs, from several threads; yields the times at which they were sent."""
    sent = list[float]()
    shares = [(port, UPLOADS // SENDERS, seed + n, sent) for n in range(SENDERS)]
    threads = [threading.Thread(target=send_uploads, args=share) for share in shares]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        for thread in threads:
            thread.join()


def measure(address: str, port: int, questions: list[Question], rounds: int) -> tuple[list[LoadReport], ...]:
    """Returns the reports of the windows without and with uploads."""
    without, beside = list[LoadReport](), list[LoadReport]()
    load(address, questions, clients=CLIENTS, seconds=3.0)
    for number in range(rounds):
        without.append(load(address, questions, clients=CLIENTS, seconds=WINDOW, seed=number))
        with uploading(port, 1000 * number) as sent:
            beside.append(load(address, questions, clients=CLIENTS, seconds=WINDOW, seed=number))
            print(f"round {number + 1}  {len(sent)} uploads were sent in the window of {WINDOW:.0f} s", flush=True)
    return without, beside


def stop(server: subprocess.Popen[bytes], port: int) -> float:
    """Returns the seconds from SIGTERM to the end of a server that reads documents and is sent others."""
    with ExitStack() as stack:
        for number in range(4):
            client = HostileClient(port, random.Random(number))
            stack.enter_context(hostile.upload(client, DOCUMENT))  # type: ignore[arg-type]
        stack.enter_context(uploading(port, 0))
        time.sleep(1.0)
        started = time.monotonic()
        server.send_signal(signal.SIGTERM)
        server.wait(120)
        return time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4, help="windows without and with uploads (4 of each)")
    rounds = parser.parse_args().rounds
    texts = invent_sentences("en")[:100]
    answers = [each.text for each in load_as(Translator, GLASS, threads=1).translate(texts)]
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(start_server(GLASS, Path(folder), port))
        stack.callback(server.kill)
        address = f"http://127.0.0.1:{port}/"
        bodies = [{"q": text, "source": "en", "target": "fr"} for text in texts]
        questions = [question(address, *pair) for pair in zip(bodies, answers, strict=True)]
        reports = measure(address, port, questions, rounds)
        stopped = stop(server, port)
    for name, some in zip(("without", "beside"), reports, strict=True):
        for each in some:
            lost = each.errors.total() + each.refused
            times = f"p50 {each.quantile(0.5):.0f} ms, p99 {each.quantile(0.99):.0f} ms"
            print(f"{name:<8} {each.rate:.1f} answers/s, {times}, {lost} lost, {each.wrong} wrong")
    pairs = zip(*reports, strict=True)
    ratios = [beside.quantile(0.99) / without.quantile(0.99) for without, beside in pairs]
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"p99      {statistics.median(ratios):.2f} times that without uploads (median of {shown})")
    print(f"SIGTERM  ended the server in {stopped:.1f} s")
    wrong = any(each.wrong for some in reports for each in some)
    return int(wrong or statistics.median(ratios) > 2 or stopped > 5)


if __name__ == "__main__":
    sys.exit(main())
