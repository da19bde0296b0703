"""Clients from PyPI that know nothing of this server, over a real socket; and clients that mean no good."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import libretranslate_aio
import pytest
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException
from libretranslatepy import LibreTranslateAPI

from regard.serving import uvicorn_server
from regard.serving.application import create_app
from regard.serving.client_limits import KeyFile, ServingLimits, make_key
from tests.serving.fakes import FakeModels
from tests.serving.running import running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(FakeModels("en-de", "de-en", "en-fr"), ServingLimits(reading=2.0), hosts=[])) as address:
        yield address


def test_libretranslatepy(address: str) -> None:
    client = LibreTranslateAPI(address)
    assert client.translate("hello & you+1", "en", "de") == "HELLO & YOU+1@de"
    assert client.detect("The dog does not see the cat.")[0]["language"] == "en"
    assert {each["code"] for each in client.languages()} == {"en", "de", "fr"}  # asks by GET with a body


def test_deep_translator(address: str, tmp_path: Path) -> None:
    client = LibreTranslator(source="en", target="de", api_key="unused", custom_url=address)
    assert client.translate("hello") == "HELLO@de"
    assert client.translate_batch(["one", "two"]) == ["ONE@de", "TWO@de"]
    key = make_key(tmp_path / "keys")
    with running(create_app(FakeModels("en-de"), keys=KeyFile(tmp_path / "keys"))) as closed:
        assert LibreTranslator(source="en", target="de", api_key=key, custom_url=closed).translate("a") == "A@de"
        with pytest.raises(AuthorizationException):
            LibreTranslator(source="en", target="de", api_key="wrong", custom_url=closed).translate("a")


def test_libretranslate_aio(address: str, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nhello\n")
    with libretranslate_aio.LibreTranslate(address.rstrip("/")) as client:
        answer = client.translate("The dog", "auto", "de", alternatives=1)
        assert answer.translated_text == "THE DOG@de"
        assert answer.alternatives == ["THE DOG 0@de"]
        assert isinstance(answer.detected_language, libretranslate_aio.DetectedLanguage)
        assert client.translate(["one", "two"], "en", "de").translated_text == ["ONE@de", "TWO@de"]
        assert client.detect("Der Hund und die Katze")[0].language == "de"
        assert client.languages()[0].targets == ["de", "en", "fr"]
        assert client.frontend_settings().char_limit == 50_000
        assert client.health()
        file = client.translate_file(tmp_path / "a.srt", "en", "de")
        assert "HELLO" in httpx.get(file.translated_file_url, timeout=60).text
        with pytest.raises(libretranslate_aio.ForbiddenError):
            client.suggest("a", "b", "en", "de")
        with pytest.raises(libretranslate_aio.BadRequestError, match="zz is not supported"):
            client.translate("a", "en", "zz")


def test_libretranslate_aio_with_many_at_once(address: str) -> None:
    async def script() -> None:
        async with libretranslate_aio.AsyncLibreTranslate(address.rstrip("/")) as client:
            answers = await asyncio.gather(*(client.translate(f"text {n}", "en", "fr") for n in range(50)))
            assert [answer.translated_text for answer in answers] == [f"TEXT {n}@fr" for n in range(50)]

    asyncio.run(script())


def test_a_get_with_a_body_leaves_the_connection_in_order(address: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    for _ in range(3):
        connection.request("GET", "/languages", body=b"api_key=x", headers={"Content-Length": "9"})
        assert len(json.load(connection.getresponse())) == 3
    connection.close()


def test_answers_are_not_held_back(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, watch = [], uvicorn_server.Protocol.watch_head

    def look(self: uvicorn_server.Protocol) -> None:
        seen.append(self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        watch(self)

    monkeypatch.setattr(uvicorn_server.Protocol, "watch_head", look)
    assert httpx.get(f"{address}health", timeout=60).status_code == 200
    assert all(seen)
    assert seen


def test_a_server_that_ends_answers_what_it_was_asked() -> None:
    models = FakeModels("en-de")
    models.queue(models.directions[0]).delay = 0.5
    with ThreadPoolExecutor(9) as pool, httpx.Client(timeout=30) as idle:
        with running(create_app(models)) as address:
            assert idle.get(f"{address}health").status_code == 200
            body = {"q": "hello", "source": "en", "target": "de"}
            asked = [pool.submit(httpx.post, f"{address}translate", json=body, timeout=30) for _ in range(8)]
            while len(models.queue(models.directions[0]).calls) < 8:
                time.sleep(0.01)
            late = pool.submit(idle.post, f"{address}translate", json=body)  # on a connection that is open already
        answers = [each.result() for each in asked] + [late.result()]
    assert [answer.json() for answer in answers] == [{"translatedText": "HELLO@de"}] * 9
    assert answers[-1].headers["connection"] == "close"
    assert models.closed


# Clients that mean no good


def raw(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What a server answers to these bytes, until it closes the connection."""
    place = urlsplit(address)
    assert place.hostname
    with socket.create_connection((place.hostname, place.port or 80), timeout=60) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            answer = b""
            while data := connection.recv(65_536):
                answer += data
        except ConnectionError:
            pass
    return answer


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEAD + b"Content-Length: 5\r\n\r\n{", b"408"),  # the rest never comes
        (HEAD + b"Content-Length: 999999999\r\n\r\n{", b"413"),
        (HEAD + b"Content-Length: -5\r\n\r\n{", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 3_000_000, b"400"),  # a chunk extension
        (HEAD + b"Host: localhost\r\nContent-Length: 5\r\n\r\n{", b"400"),  # two hosts
        (b"nonsense\r\n\r\n", b"400"),
        (HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"404"),
    ],
)
def test_malformed_requests_are_refused_and_others_are_served(address: str, request_: bytes, status: bytes) -> None:
    assert raw(address, request_).split(b" ")[1:2] == [status]
    assert httpx.get(f"{address}health", timeout=60).json() == {"status": "ok"}


def test_a_body_in_chunks_of_one_byte_is_read(address: str) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY.replace(b"hello", b"hello " * 3_000))
    answer = raw(address, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert answer.split(b" ")[1] == b"200"


BODY = b'{"q": "hello", "source": "en", "target": "de"}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


def test_an_offer_to_go_on_in_http_2_loses_no_body(address: str) -> None:
    """As Java's client makes it."""
    offer = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    head = HEAD.replace(b"close", b"close, Upgrade, HTTP2-Settings")
    for parts in ([head + offer + LENGTH + b"\r\n" + BODY], [head + offer + LENGTH + b"\r\n", BODY]):
        assert raw(address, *parts, pause=0.05).endswith(b'{"translatedText":"HELLO@de"}')
    told = BODY.replace(b"hello", b"a\\r\\nUpgrade: b")
    assert b"UPGRADE: B" in raw(address, HEAD + b"Content-Length: %d\r\n\r\n" % len(told) + told)


def test_requests_that_come_all_at_once_are_answered_in_order(address: str) -> None:
    keep = HEAD.replace(b"Connection: close\r\n", b"")
    texts = [BODY.replace(b"hello", b"txt%02d" % number) for number in range(5)]
    answer = raw(
        address, b"".join((HEAD if n == 4 else keep) + LENGTH + b"\r\n" + text for n, text in enumerate(texts))
    )
    assert re.findall(rb"TXT\d\d", answer) == [b"TXT%02d" % number for number in range(5)]


def test_a_client_that_never_ends_its_head_is_left(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "HEAD_TIMEOUT", 0.3)
    started = time.monotonic()
    assert raw(address, b"GET / HT", b"TP/1.1\r\n", pause=0.05) == b""
    assert raw(address) == b""
    assert time.monotonic() - started < 15
    with httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(3):
            assert client.get("/health").status_code == 200
            time.sleep(0.4)  # a connection that is kept alive may rest
