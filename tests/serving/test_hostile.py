"""Many hostile clients at once, against a real model on a real socket: others are served, and nothing leaks."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from regard.demo import GLASS
from regard.serving import document_processes, uvicorn_server
from regard.serving.application import create_app
from regard.serving.client_limits import ServingLimits
from regard.serving.served_models import Models
from tests.serving.running import running

TIRED = "The animal didn't cross the street because it was too tired."
RIGHT = "L'animal n'a pas traversé la rue parce qu'il était trop fatigué."
MANY = 60
POOLS = ("asyncio_", "uvloop_", "regard-prepare", "regard-texts")  # pools that grow to a maximum number of threads
HEAD = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Place:
    """A server, and the resources that it holds."""

    def __init__(self, address: str, models: Models, files: Path) -> None:
        self.address, self.files = address, files
        (self.scheduler,) = models.queues.values()
        self.client = httpx.Client(base_url=address, timeout=120)
        self.right()
        self.before = self.in_hand()

    def right(self) -> float:
        """Checks that another client gets the right answer, and returns the seconds that it waited."""
        started = time.monotonic()
        answer = self.client.post("/translate", json={"q": TIRED, "source": "en", "target": "fr"})
        assert answer.json() == {"translatedText": RIGHT}
        return time.monotonic() - started

    def in_hand(self) -> dict[str, int]:
        return {
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "threads": sum(not thread.name.startswith(POOLS) for thread in threading.enumerate()),
            "files": len(list(self.files.iterdir())),
            "requests": self.scheduler.open_requests,
            "waiting": self.scheduler.waiting,
            "running": self.scheduler.running,
        }

    def connect(self) -> socket.socket:
        place = urlsplit(self.address)
        return socket.create_connection((place.hostname or "", place.port or 80), timeout=120)

    def nothing_is_left(self) -> None:
        end = time.monotonic() + 60
        while (now := self.in_hand()) != self.before and time.monotonic() < end:
            time.sleep(0.05)
        assert now == self.before


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not Path("/proc/self/fd").exists():
        pytest.skip("counts descriptors as Linux tells them")
    models, files = Models.load([GLASS], threads=1), tmp_path_factory.mktemp("files")
    limits = ServingLimits(reading=1.5, bytes=100_000, upload=50_000)
    with running(create_app(models, limits, files=files, hosts=[])) as address:
        place = Place(address, models, files)
        yield place
        place.client.close()


def say(connection: socket.socket, data: bytes) -> None:
    """Sends data; a server that has waited for too long has closed the connection already."""
    with suppress(ConnectionError):
        connection.sendall(data)


def body(text: str, count: int = 1) -> bytes:
    return json.dumps({"q": [text] * count, "source": "en", "target": "fr"}).encode()


def slow_heads(place: Place) -> list[socket.socket]:
    """Slow-loris: a head that never ends."""
    every = [place.connect() for _ in range(MANY)]
    for part in (b"POST /translate HTTP/1.1\r\n", b"Host: localhost\r\n", b"X-A: b\r\n"):
        for each in every:
            say(each, part)
    return every


def slow_bodies(place: Place) -> list[socket.socket]:
    every = [place.connect() for _ in range(MANY)]
    for each in every:
        say(each, HEAD.format(1000).encode() + b'{"q": "')
    return every


def half_closed(place: Place) -> list[socket.socket]:
    """They ask, and close their sending side."""
    every = [place.connect() for _ in range(MANY)]
    for each in every:
        each.sendall(HEAD.format(len(body(TIRED, 20))).encode() + body(TIRED, 20))
        each.shutdown(socket.SHUT_WR)
    return every


def cancelled(place: Place) -> list[socket.socket]:
    """They ask for much, and leave at once; half of them with a reset."""
    for number in range(MANY):
        each = place.connect()
        each.sendall(HEAD.format(len(body(TIRED, 200))).encode() + body(TIRED, 200))
        if number % 2:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    return []


def oversized(place: Place) -> list[socket.socket]:
    """They send more than is accepted, or announce it."""
    every = [place.connect() for _ in range(MANY)]
    for number, each in enumerate(every):
        say(each, HEAD.format(10**9 if number % 2 else 99_999).encode() + b"x" * 200_000)
    return every


def malformed(place: Place) -> list[socket.socket]:
    every = [place.connect() for _ in range(MANY)]
    kinds = [b"\x16\x03\x01\x02\x00\x01", b"\x00" * 500, b"GET /\xff HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nA\r\n\r\n"]
    for number, each in enumerate(every):
        say(each, kinds[number % len(kinds)])
    return every


def unread(place: Place) -> list[socket.socket]:
    """They ask again and again on one connection, and read no answer."""
    every = [place.connect() for _ in range(MANY // 10)]
    question = b"GET /spec HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
    for each in every:
        each.settimeout(0.2)
        try:
            for _ in range(20):
                each.sendall(question)
        except (TimeoutError, ConnectionError):
            continue  # the server takes no more either, or has hung up on who does not read
    return every


def files(place: Place) -> list[socket.socket]:
    """They send files that are too long or damaged, or leave before the answer."""
    for number in range(10):
        name, content = ("a.po", b'msgid "') if number % 2 else ("a.txt", b"x" * 60_000)
        sent = place.client.post(
            "/translate_file", files={"file": (name, content)}, data={"source": "en", "target": "fr"}
        )
        assert sent.status_code in (400, 413)
        text = b"--x\r\nContent-Disposition: form-data; name=file; filename=a.txt\r\n\r\n" + TIRED.encode() * 50
        each = place.connect()
        head = HEAD.format(len(text) + 900).replace("application/json", "multipart/form-data; boundary=x")
        each.sendall(head.replace("/translate ", "/translate_file ").encode() + text)
        each.close()
    return []


@pytest.mark.parametrize(
    "attack", [slow_heads, slow_bodies, half_closed, cancelled, oversized, malformed, unread, files]
)
def test_others_are_served_and_nothing_is_left(
    place: Place, attack: Callable[[Place], list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "HEAD_TIMEOUT", 1.0)
    with ExitStack() as stack:  # what is left open would be a warning in another test
        held = [stack.enter_context(each) for each in attack(place)]
        assert max(place.right() for _ in range(5)) < 60
        if attack in (slow_heads, slow_bodies, oversized, malformed, half_closed):  # the server hangs up by itself
            for each in held:
                with suppress(ConnectionError):
                    while each.recv(65_536):
                        pass
    place.right()
    place.nothing_is_left()


def test_a_flood_is_refused_and_ends(place: Place) -> None:
    """Of more requests than one client has places for, the others are refused with a time to try again."""
    limits = ServingLimits(concurrent=16, concurrent_each=8)
    models = Models.load([GLASS], threads=1)
    with running(create_app(models, limits, files=place.files)) as address, ExitStack() as stack:
        flooded = Place(address, models, place.files)
        every = [stack.enter_context(flooded.connect()) for _ in range(MANY)]
        content = body(TIRED, 20)
        for each in every:
            each.sendall(
                HEAD.format(len(content)).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").encode() + content
            )
        answers = []
        for each in every:
            answer = b""
            while data := each.recv(65_536):
                answer += data
            answers.append(answer)
        codes = [int(answer.split()[1]) for answer in answers]
        assert set(codes) == {200, 429}
        assert codes.count(200) >= 8
        assert all(b"retry-after: " in answer for answer, code in zip(answers, codes, strict=True) if code == 429)
        stack.close()
        flooded.right()
        flooded.nothing_is_left()
        flooded.client.close()


DOCUMENT = (
    b"--x\r\nContent-Disposition: form-data; name=source\r\n\r\nen\r\n"
    b"--x\r\nContent-Disposition: form-data; name=target\r\n\r\nfr\r\n"
    b"--x\r\nContent-Disposition: form-data; name=file; filename=a.md\r\n\r\n%b\r\n--x--\r\n"
)


def upload(place: Place, content: bytes) -> socket.socket:
    document, connection = DOCUMENT % content, place.connect()
    head = HEAD.format(len(document)).replace("application/json", "multipart/form-data; boundary=x")
    connection.sendall(head.replace("/translate ", "/translate_file ").encode() + document)
    return connection


def parsers() -> int:
    """Returns the number of processes that read documents for this one."""
    count = 0
    for process in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = process.read_text().rpartition(")")[2].split()
            count += fields[1] == str(os.getpid()) and fields[0] != "Z"
    return count


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_document_costs_nothing_when_its_client_has_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it would take to read it."""
    monkeypatch.setattr(document_processes, "COMMAND", ("sleep", "600"))
    before = parsers()
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(upload(place, b"`a " * 1_000))
        wait_until(lambda: parsers() > before, 30)
        assert max(place.right() for _ in range(3)) < 10
    wait_until(lambda: parsers() == before, 5)
    monkeypatch.undo()
    sent = place.client.post("/translate_file", files={"file": ("a.md", TIRED)}, data={"source": "en", "target": "fr"})
    assert place.client.get(urlsplit(sent.json()["translatedFileUrl"]).path).text.strip() == RIGHT
    place.client.get("/health")
    for path in place.files.iterdir():
        path.unlink()
    place.nothing_is_left()


def test_a_server_ends_while_documents_are_read_and_bodies_arrive(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_processes, "COMMAND", ("sleep", "600"))
    before, models = parsers(), Models.load([GLASS], threads=1)
    with ExitStack() as stack:
        with running(create_app(models, files=place.files)) as address:
            server = Place(address, models, place.files)
            waiting = [stack.enter_context(upload(server, b"text")) for _ in range(4)]
            waiting += [stack.enter_context(each) for each in slow_bodies(server)]
            wait_until(lambda: parsers() > before, 30)
            server.client.close()
            started = time.monotonic()
        assert time.monotonic() - started < 5
        for connection in waiting[:4]:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 429")
    assert parsers() == before


def test_slow_bodies_take_no_places_of_complete_requests(place: Place) -> None:
    models = Models.load([GLASS], threads=1)
    limits = ServingLimits(concurrent=16, concurrent_each=8, reading=20.0)
    with running(create_app(models, limits, files=place.files, metrics=True)) as address, ExitStack() as stack:
        server = Place(address, models, place.files)
        held = [stack.enter_context(server.connect()) for _ in range(128)]
        for each in held:
            say(each, HEAD.format(1000).encode() + b'{"q": "')
        wait_until(lambda: server.client.post("/translate", json={}).status_code == 429, 30)
        for path in ("/health", "/metrics", "/languages"):  # the slow bodies hold no places of complete requests
            assert server.client.get(path).status_code == 200
        stack.close()
        wait_until(lambda: server.client.post("/translate", json={}).status_code == 400, 30)
        server.client.close()


def test_health_is_answered_while_all_places_are_taken(place: Place) -> None:
    models, content = Models.load([GLASS], threads=1), body(TIRED, 200)
    limits = ServingLimits(concurrent=2, concurrent_each=2)
    with running(create_app(models, limits, files=place.files, metrics=True)) as address, ExitStack() as stack:
        server = Place(address, models, place.files)
        for _ in range(4):
            each = stack.enter_context(server.connect())
            each.sendall(HEAD.format(len(content)).encode() + content)
        wait_until(lambda: server.client.get("/languages").status_code == 429, 30)
        for path in ("/health", "/metrics"):
            assert server.client.get(path).status_code == 200
        server.client.close()
