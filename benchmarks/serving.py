"""Load on a server of regard's, beside the same model offline and asked one request at a time: ratios of one run.

python benchmarks/serving.py MODEL TEXT [--clients 64] [--seconds 120]    (TEXT has a sentence on each line)

Every answer is compared with the offline one. The clients are one process, the server is another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard.decoding.engine import load_as
from regard.decoding.translator import Translator
from regard.text.directions import directions_of
from regard.text.protect import find

MIB = 2**20


@dataclass
class Load:
    """What some clients have seen."""

    elapsed: float
    seconds: list[float] = field(default_factory=list)  # of each answer that came in this time
    wrong: int = 0
    errors: int = 0

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.elapsed

    def quantile(self, share: float) -> float:
        """Milliseconds within which this share was answered."""
        return 1000 * sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--lines", type=int, default=1000, help="of the text (1000)")
    arguments = parser.parse_args()
    lines = [line.strip() for line in arguments.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    plain = [line for line in dict.fromkeys(lines) if not find(line)]  # the server keeps placeholders, in its own way
    texts = plain[: arguments.lines]
    translator = load_as(Translator, arguments.model)
    direction = directions_of(translator.settings.data)[0]
    way: dict[str, Any] = {"source": direction.source, "target": direction.target}
    offline, answers = measure_offline(translator, texts, way)
    with serving(arguments.model) as (address, process):
        asyncio.run(load(address, answers, way, clients=arguments.clients, seconds=5.0))  # warms up, and has its memory
        alone = asyncio.run(load(address, answers, way, clients=1, seconds=min(20.0, arguments.seconds)))
        before = memory(process)
        many = asyncio.run(load(address, answers, way, clients=arguments.clients, seconds=arguments.seconds))
        after = memory(process)
    again, _ = measure_offline(translator, texts, way)
    report(offline=max(offline, again), alone=alone, many=many, clients=arguments.clients)
    print(f"memory      {before / MIB:.0f} MiB before, {after / MIB:.0f} MiB after")
    sys.exit(bool(many.wrong or many.errors or alone.wrong or alone.errors))


def report(offline: float, alone: Load, many: Load, clients: int) -> None:
    """Prints the figures, the last two as ratios, which a busy machine changes less."""
    print(f"offline     {offline:.1f} sentences/s, all at once")
    for name, seen in (("one client", alone), (f"{clients} clients", many)):
        times = f"p50 {seen.quantile(0.5):.0f} ms, p99 {seen.quantile(0.99):.0f} ms"
        print(f"{name:<11} {seen.rate:.1f} sentences/s, {times}, {seen.errors} errors, {seen.wrong} wrong answers")
    print(f"ratios      {many.rate / offline:.2f} of offline, {many.rate / alone.rate:.2f} times one client")


def measure_offline(translator: Translator, texts: Sequence[str], way: dict[str, Any]) -> tuple[float, dict[str, str]]:
    """Sentences a second when all are there, and what becomes of each."""
    translator.translate(texts[:16], **way)
    start = time.perf_counter()
    made = translator.translate(texts, **way)
    seconds = time.perf_counter() - start
    return len(texts) / seconds, {text: each.text.strip() for text, each in zip(texts, made, strict=True)}


@contextmanager
def serving(model: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "regard", "serve", str(model), "--port", "0"]
    limits = ["--rate", "0", "--max-concurrent", "1000"]
    with subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"http://\S+", first)
            if found is None:
                sys.exit(f"the server does not start: {first}")
            yield found.group(), process
        finally:
            process.terminate()


async def load(address: str, answers: dict[str, str], way: dict[str, Any], *, clients: int, seconds: float) -> Load:
    """What clients see that ask for one sentence after the other."""
    seen, end = Load(seconds), time.perf_counter() + seconds
    await asyncio.gather(*(client(address, answers, way, seen, end, seed) for seed in range(clients)))
    return seen


async def client(address: str, answers: dict[str, str], way: dict[str, Any], seen: Load, end: float, seed: int) -> None:
    dice, texts, place = random.Random(seed), list(answers), urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    while time.perf_counter() < end:
        text = dice.choice(texts)
        start = time.perf_counter()
        try:
            status, answer = await ask(reader, writer, place.netloc, {"q": text, "format": "text", **way})
        except (OSError, ValueError, asyncio.IncompleteReadError):
            seen.errors += 1
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            continue
        if (now := time.perf_counter()) < end:
            seen.seconds.append(now - start)
        seen.errors += status != 200
        seen.wrong += status == 200 and answer.get("translatedText", "").strip() != answers[text]
    writer.close()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    writer.write(f"{head}\r\n\r\n".encode() + content)
    answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"(?i)^content-length: (\d+)", answered, re.MULTILINE)
    answer: dict[str, Any] = json.loads(await reader.readexactly(int(length.group(1)) if length else 0))
    return int(answered.split()[1]), answer


def memory(process: subprocess.Popen[str]) -> int:
    """Bytes of a process, as Linux tells them."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return 1024 * int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


if __name__ == "__main__":
    main()
