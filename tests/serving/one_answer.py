"""Sends thousands of requests under random load to real servers, and counts the answers that each text has.

    python -m tests.serving.one_answer --requests 10000

There is one server for each precision and number of threads. Clients come in waves of random size and send random
texts, alone or several at once, with random options. In each precision, every text must have exactly one answer for
the same options, whatever shares its batch and whichever server, worker and thread translates it. The exit code is 1
if a text has several answers, or if a request fails.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product

import httpx

from regard.cli.serving_benchmark import invent_sentences
from regard.demo import GLASS

TEXTS = invent_sentences("en")[:200]
PRECISIONS, THREADS = ("float32", "int8"), (1, 2)
MOST_CLIENTS, MOST_TEXTS = 48, 12
ALTERNATIVES = (0, 0, 2)
"""Numbers of alternative translations to ask for; a request without any is the most frequent one."""

Key = tuple[str, str, int]
"""A precision, a text and the number of alternatives."""


@dataclass
class AnswerReport:
    """The answers of all servers."""

    answers: defaultdict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def different(self) -> list[Key]:
        """Texts with several answers."""
        return [key for key, answers in self.answers.items() if len(answers) > 1]

    def lines(self) -> list[str]:
        """Returns the report for people."""
        translations = sum(answers.total() for answers in self.answers.values())
        return [
            f"requests      {self.requests:,} in {self.seconds:.0f} s, {self.failures.total()} failed",
            f"translations  {translations:,} of {len(self.answers):,} different questions",
            f"answers       {len(self.different)} questions have several answers",
            *(f"  {key}: {dict(self.answers[key])}" for key in self.different[:10]),
        ]


class Server:
    """A `regard serve` in a process of its own, whose log nobody reads."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "regard", "serve", str(GLASS), *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.address = re.findall(r"http://[\d.]+:\d+/", self.process.stdout.readline())[0]

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


def ask(server: Server, precision: str, seeds: Sequence[int]) -> list[tuple[Key, str]]:
    """Sends a request for each seed on one connection; returns the answers."""
    found: list[tuple[Key, str]] = []
    with httpx.Client(base_url=server.address, timeout=300) as client:
        for seed in seeds:
            dice = random.Random(seed)
            count = dice.choice((1, 1, dice.randint(2, MOST_TEXTS)))
            texts, alternatives = dice.choices(TEXTS, k=count), dice.choice(ALTERNATIVES)
            body = {"q": texts, "source": "en", "target": "fr", "alternatives": alternatives}
            answer = client.post("/translate", json=body).raise_for_status().json()
            others = answer.get("alternatives", [[]] * count)
            for text, best, more in zip(texts, answer["translatedText"], others, strict=True):
                found.append(((precision, text, alternatives), json.dumps([best, *more])))
    return found


def run(requests: int, seed: int = 0) -> AnswerReport:
    """Starts the servers, sends the requests in waves, and ends the servers."""
    report, dice, start = AnswerReport(), random.Random(seed), time.monotonic()
    servers = {
        (precision, threads): Server("--precision", precision, "--threads", str(threads))
        for precision, threads in product(PRECISIONS, THREADS)
    }
    try:
        with ThreadPoolExecutor(MOST_CLIENTS) as clients:
            while report.requests < requests:
                waves = []
                for _ in range(dice.randint(1, MOST_CLIENTS)):
                    (precision, _), server = dice.choice(list(servers.items()))
                    count = min(dice.randint(1, 8), requests - report.requests)
                    numbers = range(report.requests, report.requests + count)
                    report.requests += count
                    waves.append(clients.submit(ask, server, precision, [seed + number for number in numbers]))
                for wave in waves:
                    try:
                        for key, answer in wave.result():
                            report.answers[key][answer] += 1
                    except httpx.HTTPError as error:
                        report.failures[repr(error)] += 1
    finally:
        for server in servers.values():
            server.end()
    report.seconds = time.monotonic() - start
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report = run(arguments.requests, arguments.seed)
    print("\n".join(report.lines()))
    return int(bool(report.different or report.failures))


if __name__ == "__main__":
    sys.exit(main())
