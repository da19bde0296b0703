"""A load generator: clients that send requests to a server, and compare each answer with the expected one.

It uses plain sockets in one thread and requests built in advance: with asyncio, a request took 50 % more processor
time, which the server needs.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0
"""Timeout in seconds, after which a request counts as lost."""


@dataclass(frozen=True)
class Question:
    """An HTTP request for one translation, and the expected translation."""

    request: bytes
    answer: str | None = None  # None: the first answer received is taken as correct


@dataclass
class LoadReport:
    """The results of a load test: response times, and counts of requests, answers and errors."""

    elapsed: float = 0.0
    seconds: list[float] = field(default_factory=list)  # response times of the answers that arrived in time
    asked: int = 0  # number of requests sent
    answered: int = 0  # number of correct answers
    wrong: int = 0  # number of answers with an unexpected text
    errors: Counter[str] = field(default_factory=Counter)  # counts by HTTP status, and of lost requests
    refused: int = 0  # number of refused connections

    @property
    def rate(self) -> float:
        """The number of answers per second."""
        return len(self.seconds) / max(1e-9, self.elapsed)

    def quantile(self, share: float) -> float:
        """Returns a quantile of the response times in milliseconds; `share` is 0.99 for the 99th percentile."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def question(address: str, body: Mapping[str, Any], answer: str | None = None) -> Question:
    """Builds the HTTP request for a translation."""
    url, content = urlsplit(address), json.dumps(body).encode()
    head = f"POST {url.path.rstrip('/')}/translate HTTP/1.1\r\nHost: {url.netloc}\r\nAccept: application/json\r\n"
    kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return Question((head + kind).encode() + content, answer)


def load(address: str, questions: Sequence[Question], *, clients: int, seconds: float, seed: int = 0) -> LoadReport:
    """Runs clients that each send one request after another, until the time is up or no client can connect."""
    url, report, known = urlsplit(address), LoadReport(), dict[int, bytes]()
    target = url.hostname or "127.0.0.1", url.port or 80
    with selectors.DefaultSelector() as selector:
        all_clients = [_Client(target, questions, known, report, random.Random(seed + n)) for n in range(clients)]
        start = time.perf_counter()
        end = start + seconds
        active = {client for client in all_clients if client.ask(selector, end)}
        while active:
            events = selector.select(1.0)
            now = time.perf_counter()
            for key, _ in events:
                if not key.data.read(selector, now, end):
                    active.discard(key.data)
            if now > end:
                late = {client for client in active if client.started + TIMEOUT_SECONDS < now}
                for client in late:
                    client.lose(selector, "no answer")
                active -= late
        report.elapsed = min(seconds, time.perf_counter() - start)
    return report


class _Client:
    """One client; it reuses its connection until the server closes it."""

    def __init__(
        self,
        target: tuple[str, int],
        questions: Sequence[Question],
        known: dict[int, bytes],
        report: LoadReport,
        rng: random.Random,
    ) -> None:
        self.target, self.questions, self.known, self.report, self.rng = target, questions, known, report, rng
        self.socket: socket.socket | None = None
        self.number, self.started, self.data = 0, 0.0, b""

    def ask(self, selector: selectors.BaseSelector, end: float) -> bool:
        """Sends the next request, on a new connection if necessary; returns False if it cannot connect in time.

        A request that cannot be sent counts as lost, and the next one is sent immediately.
        """
        while time.perf_counter() < end:
            try:
                if self.socket is None:
                    self.socket = socket.create_connection(self.target, timeout=TIMEOUT_SECONDS)
                    self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(self.socket, selectors.EVENT_READ, self)
            except OSError:
                self.report.refused += 1
                return False
            self.number, self.data = self.rng.randrange(len(self.questions)), b""
            self.started = time.perf_counter()
            self.report.asked += 1
            try:
                self.socket.sendall(self.questions[self.number].request)
            except OSError:
                self.lose(selector, "lost")
            else:
                return True
        self.close(selector)
        return False

    def read(self, selector: selectors.BaseSelector, now: float, end: float) -> bool:
        """Reads a part of the answer; returns False if this client is done."""
        assert self.socket is not None
        try:
            part = self.socket.recv(65_536)
        except OSError:
            part = b""
        if not part:
            self.lose(selector, "lost")
            return self.ask(selector, end)
        self.data += part
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found or len(body) < content_length(head):
            return True
        self.check(head, body, now, end)
        if now >= end or b"\r\nconnection: close" in head.lower():
            self.close(selector)
        return self.ask(selector, end)

    def check(self, head: bytes, body: bytes, now: float, end: float) -> None:
        """Counts an answer as correct, wrong or an error; a body equal to an earlier correct one is not parsed."""
        if now <= end:
            self.report.seconds.append(now - self.started)
        if not head.startswith(b"HTTP/1.1 200"):
            self.report.errors[head[9:12].decode("latin-1")] += 1
            return
        if self.known.get(self.number) != body:
            expected, text = self.questions[self.number].answer, json.loads(body).get("translatedText")
            if self.number in self.known or (expected is not None and text != expected):
                self.report.wrong += 1
                return
            self.known[self.number] = body
        self.report.answered += 1

    def lose(self, selector: selectors.BaseSelector, reason: str) -> None:
        self.report.errors[reason] += 1
        self.close(selector)

    def close(self, selector: selectors.BaseSelector) -> None:
        if self.socket is not None:
            selector.unregister(self.socket)
            self.socket.close()
            self.socket = None


def content_length(head: bytes) -> int:
    """Returns the Content-Length of a response, or 0 if it has none."""
    _, found, text = head.lower().partition(b"\r\ncontent-length:")
    return int(text.partition(b"\r\n")[0]) if found else 0
