"""Clients that put load on a server: what they count."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from regard.cli import load_generator
from regard.cli.load_generator import load, question
from regard.serving.application import create_app
from tests.serving.fakes import FakeModels
from tests.serving.running import running

BODY = {"q": "hello", "source": "en", "target": "de"}


@contextmanager
def saying(*answers: bytes) -> Iterator[str]:
    """A server that says one of these on each connection, whatever it is asked, and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as waiting:

        def serve() -> None:
            for answer in answers:
                connection, _ = waiting.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)
            waiting.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{waiting.getsockname()[1]}/"
        thread.join(10)


def test_right_and_wrong_answers_are_told_apart() -> None:
    with running(create_app(FakeModels("en-de"))) as address:
        right = load(address, [question(address, BODY, "HELLO@de")], clients=3, seconds=0.2)
        wrong = load(address, [question(address, BODY, "Hallo")], clients=2, seconds=0.1)
        first = load(address, [question(address, BODY)], clients=1, seconds=0.1)
    assert right.answered == right.asked > 0
    assert not right.errors
    assert right.quantile(0.99) >= right.quantile(0.5) > 0
    assert wrong.wrong == wrong.asked > 0
    assert first.answered == first.asked > 0


def test_what_is_lost_refused_or_an_error_is_counted() -> None:
    good = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\nConnection: close\r\n\r\n{"translatedText":"A"}'
    other = good.replace(b'"A"', b'"B"')
    bad = b"HTTP/1.1 429 Slowdown\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    with saying(good, good[:-5], b"", other, bad, good) as address:
        seen = load(address, [question(address, BODY)], clients=1, seconds=30)
    assert (seen.asked, seen.answered, seen.wrong, seen.refused) == (6, 2, 1, 1)
    assert seen.errors == {"lost": 2, "429": 1}
    assert seen.elapsed < 20


def test_a_request_that_cannot_be_sent_is_counted_once_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two connections of the client are reset before it sends anything."""
    connect, resets = socket.create_connection, [1, 2]

    def connect_and_reset(target: tuple[str, int], timeout: float) -> socket.socket:
        if not resets or not resets.pop():
            return connect(target, timeout)
        with socket.create_server(("127.0.0.1", 0)) as waiting:
            connection = connect(waiting.getsockname(), timeout)
            accepted, _ = waiting.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
        return connection

    monkeypatch.setattr(load_generator, "TIMEOUT_SECONDS", 3.0)
    monkeypatch.setattr(socket, "create_connection", connect_and_reset)
    started = time.monotonic()
    with running(create_app(FakeModels("en-de"))) as address:
        seen = load(address, [question(address, BODY)], clients=1, seconds=0.3)
    assert seen.errors == {"lost": 2}
    assert seen.asked == seen.answered + 2 > 2
    assert time.monotonic() - started < 3
