"""Requests that are too long, too fast, too slow or not allowed are refused, and others are not disturbed."""

from __future__ import annotations

import asyncio
import json
import stat
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.errors import DataError, InputError
from regard.faithful.repair_translation import SourceLine
from regard.serving.application import create_app
from regard.serving.client_limits import Admission, KeyFile, Rates, ServingLimits, client_of, digest_of, make_key
from regard.serving.refusals import RefusedError
from regard.serving.translated_files import FileStore
from regard.tokens.language_directions import Direction
from tests.serving.fakes import FakeModels

QUESTION = {"q": "hello", "source": "en", "target": "de"}
EN_DE = Direction("en", "de")


def served(limits: ServingLimits | None = None, keys: KeyFile | None = None, **options: Any) -> TestClient:
    models = options.pop("models", None) or FakeModels("en-de")
    return TestClient(create_app(models, limits or ServingLimits(), keys, **options), base_url="http://localhost")


# Keys


def test_a_key_is_shown_once_and_only_its_digest_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first, second = make_key(path, "weblate"), make_key(path, "bob")
    kept = path.read_text()
    assert first not in kept
    assert digest_of(first) in kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = KeyFile(path)
    found = keys.find(second)
    assert found is not None
    assert found.name == "bob"
    assert keys.find(first[:-1]) is None
    path.write_text("".join(line for line in kept.splitlines(keepends=True) if "bob" not in line))
    assert keys.find(second) is None  # without a new start
    assert keys.find(first) is not None


@pytest.mark.parametrize("line", ["secret bob", "0" * 64, f"{'0' * 64} bob often", f"{'0' * 64} a b c"])
def test_a_damaged_file_of_keys_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# who may\n\n{line}\n")
    with pytest.raises(DataError, match=":3: "):
        KeyFile(path)
    with pytest.raises(DataError, match="--make-key"):
        KeyFile(tmp_path / "none")
    with pytest.raises(InputError, match="name for a key"):
        make_key(path, "a b")


@pytest.mark.parametrize("text", ["A dog runs.\n", "source,target\ndog,Hund\n", "\x80"])
def test_a_new_key_is_not_written_into_another_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.en"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="is not a file of keys"):
        make_key(path, "bob")
    assert path.read_bytes() == text.encode("latin-1")


def test_a_new_key_has_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{'0' * 64} weblate")  # without a line end
    key = make_key(path, "bob")
    keys = KeyFile(path)
    assert [each.name for each in keys.all()] == ["weblate", "bob"]
    assert keys.find(key) is not None


def test_a_key_is_asked_for_in_the_body_or_the_header(tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys", "weblate")
    seen: list[dict[str, Any]] = []
    with served(keys=KeyFile(tmp_path / "keys"), note=seen.append) as client:
        assert client.get("/frontend/settings").json()["keyRequired"]
        assert client.get("/languages").status_code == 200
        without = client.post("/translate", json=QUESTION)
        assert (without.status_code, "API key" in without.json()["error"]) == (400, True)
        wrong = client.post("/translate", json={**QUESTION, "api_key": "x"})
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert client.post("/translate", json={**QUESTION, "api_key": [1]}).status_code == 403
        assert client.post("/translate", json={**QUESTION, "api_key": key}).status_code == 200
        assert client.post("/translate", params={**QUESTION, "api_key": key}).status_code == 200
        assert client.post("/translate", json=QUESTION, headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert client.post("/detect", json={"q": "hello"}).status_code == 400
    assert seen[-2]["client"] == "weblate"
    assert key not in json.dumps(seen)
    assert "hello" not in json.dumps(seen)


def test_keys_cannot_be_tried_out_quickly(tmp_path: Path) -> None:
    make_key(tmp_path / "keys")
    admission = Admission(ServingLimits(), KeyFile(tmp_path / "keys"))
    admission.rates.clock = lambda: 0.0
    with pytest.raises(RefusedError, match="Invalid API key"):
        admission.admit("10.0.0.2", "\ud800")  # half a character
    for number, status in enumerate([*[403] * 60, 429, 429]):
        with pytest.raises(RefusedError) as refused:
            admission.admit("10.0.0.1", str(number))
        assert refused.value.status == status


# Rates


def test_a_bucket_empties_and_fills_up_again() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    for _ in range(30):
        rates.take("a", 30)
    with pytest.raises(RefusedError, match="Slowdown: 30 per 1 minute") as refused:
        rates.take("a", 30)
    assert refused.value.retry_after == pytest.approx(2.0)
    rates.take("b", 30)
    rates.take("a", 0)  # no limit
    now[0] = 2.0
    rates.take("a", 30)
    with pytest.raises(RefusedError):
        rates.take("a", 30)


def test_clients_above_their_rate_learn_when_to_try_again(tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys", "fast")
    (tmp_path / "keys").write_text((tmp_path / "keys").read_text().strip() + " 100\n")
    with served(ServingLimits(rate=2)) as client:
        codes = [client.post("/translate", json=QUESTION).status_code for _ in range(3)]
        last = client.post("/translate", json=QUESTION)
        assert client.get("/health").status_code == 200
    assert codes == [200, 200, 429]
    assert last.json() == {"error": "Slowdown: 2 per 1 minute"}
    assert 25 <= int(last.headers["retry-after"]) <= 30
    with served(ServingLimits(rate=2), KeyFile(tmp_path / "keys")) as client:
        codes = [client.post("/translate", json={**QUESTION, "api_key": key}).status_code for _ in range(5)]
    assert codes == [200] * 5  # the key has a rate of its own


def test_memory_of_clients_is_bounded() -> None:
    rates = Rates(lambda: 0.0)
    rates.take("0", 2)
    for number in range(1, 20_000):
        rates.take(str(number), 1)
    rates.take("0", 2)
    for number in range(20_000, 20_100):
        rates.take(str(number), 1)
    assert len(rates._buckets) == 20_000
    with pytest.raises(RefusedError):  # the least recent client was forgotten, which is another one
        rates.take("0", 2)
    rates.take("1", 1)


def test_a_network_counts_as_one_client() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:2") != client_of("2001:db8:0:1::1")
    assert client_of("10.0.0.1") != client_of("10.0.0.2")
    assert client_of("unix") == "unix"


# Files


def test_the_shelf_is_private_and_bounded_and_empties(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "files"
    shelf = FileStore(10, 60, folder, lambda: now[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    token = shelf.put(b"12345678", "../../a.txt")
    assert shelf.get(token) == ("../../a.txt", b"12345678")
    assert shelf.get(token[1:]) is None
    assert [path.parent for path in folder.iterdir()] == [folder]
    with pytest.raises(RefusedError):
        shelf.put(b"123", "b")
    now[0] = 60.0
    assert shelf.get(token) is None
    assert list(folder.iterdir()) == []
    shelf.put(b"123", "b")


def test_servers_that_share_a_folder_serve_and_delete_each_others_files(tmp_path: Path) -> None:
    now = [0.0]
    first, second = (FileStore(100, 60, tmp_path / "files", lambda: now[0]) for _ in range(2))
    token = first.put(b"text", "a.txt")
    other = tmp_path / "files" / "of the operator.txt"
    other.write_text("mine")
    first.close()
    assert second.get(token) == ("a.txt", b"text")
    now[0] = 60.0
    second.sweep()
    assert list((tmp_path / "files").iterdir()) == [other]


def test_without_a_folder_files_go_when_the_server_ends_or_the_next_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shelf = FileStore(100, 60)
    assert list(tmp_path.iterdir()) == []  # made when it is needed
    shelf.put(b"text", "a.txt")
    shelf.fresh(".po").write_bytes(b"sent, and then the server was killed")
    folder = shelf.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    killed = FileStore(100, 60)
    killed.put(b"text", "b.txt")
    shelf.close()
    assert len(list(folder.iterdir())) == 2
    later = FileStore(100, 60, clock=lambda: time.time() + 100_000)
    assert later.folder == folder
    later.sweep()
    assert list(folder.iterdir()) == []
    folder.rmdir()
    folder.symlink_to(tmp_path)  # by somebody who wants to read along
    assert FileStore(100, 60).folder != folder


# Checks before every answer


def test_only_known_names_are_answered_to_on_this_machine() -> None:
    with served(hosts=["translate.example"]) as client:
        for host, status in (
            ("localhost", 200),
            ("localhost:5000", 200),
            ("127.0.0.1:5000", 200),
            ("[::1]:5000", 200),
            ("translate.example", 200),
            ("evil.example", 400),
            ("", 400),
        ):
            assert client.get("/health", headers={"Host": host}).status_code == status, host
    with served() as client:
        assert client.get("/health", headers={"Host": "any.example"}).status_code == 200


def test_every_answer_forbids_frames_scripts_and_guesses() -> None:
    with served(ServingLimits(rate=3), hosts=["translate.example"]) as client:
        answers = [
            client.get("/health"),
            client.get("/nothing"),
            client.get("/health", headers={"Host": "evil.example"}),
            client.options("/translate"),
            *(client.post("/translate", json=QUESTION) for _ in range(4)),
        ]
    assert [answer.status_code for answer in answers] == [200, 404, 400, 200, 200, 200, 200, 429]
    for answer in answers:
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


def test_requests_have_names() -> None:
    seen: list[dict[str, Any]] = []
    with served(note=seen.append) as client:
        own = client.get("/health", headers={"X-Request-ID": "abc-1"})
        made = client.get("/health", headers={"X-Request-ID": "a b" + "x" * 100})
        client.post("/translate", params={"q": "secret", "source": "en", "target": "zz"})
    assert own.headers["x-request-id"] == "abc-1"
    assert len(made.headers["x-request-id"]) == 32
    assert [record["status"] for record in seen] == [200, 200, 400]
    assert seen[0]["request"] == "abc-1"
    assert "secret" not in json.dumps(seen)


def test_long_requests_are_refused_before_they_are_read() -> None:
    with served(ServingLimits(bytes=1_000)) as client:
        declared = client.post("/translate", data={"q": "x" * 2_000})
        streamed = client.post(
            "/translate", content=iter([b"x" * 600] * 4), headers={"Content-Type": "application/json"}
        )
    assert streamed.status_code == 413
    assert "exceeds limit (1000)" in streamed.json()["error"]
    assert declared.status_code == 413


def test_a_request_may_have_as_many_bytes_as_the_limit() -> None:
    with served(ServingLimits(bytes=len(BODY))) as client:
        for body, status in ((BODY, 200), (BODY + b" ", 413)):
            for content in (body, iter([body[:9], body[9:]])):  # declared, and in chunks
                answer = client.post("/translate", content=content, headers={"Content-Type": "application/json"})
                assert answer.status_code == status


def test_a_connection_is_closed_only_where_the_rest_of_a_request_is_not_read() -> None:
    with served(ServingLimits(bytes=1_000)) as client:
        answers = [
            client.get("/health"),
            client.post("/translate", json=QUESTION),
            client.post("/translate", json={**QUESTION, "target": "zz"}),
            client.post("/translate", data={"q": "x" * 2_000}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 413]
    assert [answer.headers.get("connection") for answer in answers] == [None, None, None, "close"]


Script = Callable[["Wire"], Awaitable[None]]


class Wire:
    """A client by hand, with the messages that it sends and gets."""

    def __init__(self, app: Any, path: str = "/translate", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.sent: list[dict[str, Any]] = []
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost"), *headers],
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "server": ("localhost", 80),
        }
        self.task = asyncio.ensure_future(app(scope, self.incoming.get, self.send))

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def say(self, body: bytes, *, more: bool = False) -> None:
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int | None:
        return next((message["status"] for message in self.sent if message["type"] == "http.response.start"), None)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


BODY = json.dumps(QUESTION).encode()


@pytest.mark.parametrize("text", ["hello", "hello %s"])
def test_a_client_that_leaves_is_not_worked_for(text: str) -> None:
    async def script() -> None:
        models, seen = FakeModels("en-de"), list[dict[str, Any]]()
        queue = models.queue(EN_DE)
        queue.hold = asyncio.Event()
        wire = Wire(create_app(models, note=seen.append))
        wire.say(json.dumps({**QUESTION, "q": text}).encode())
        await until(lambda: len(queue.calls) == 1)
        wire.leave()
        await asyncio.wait_for(wire.task, 60)
        await until(lambda: queue.cancelled == 1)
        assert wire.sent == []
        assert seen[0]["status"] == 499

    asyncio.run(script())


def test_a_thread_that_keeps_placeholders_ends_with_its_client() -> None:
    async def script() -> None:
        models = FakeModels("en-de")
        queue, text = models.queue(EN_DE), "hello %s\n" * 5_000
        wire = Wire(create_app(models))
        wire.say(json.dumps({**QUESTION, "q": text}).encode())
        reached = threading.Event()
        with pytest.MonkeyPatch.context() as patch:
            slow = SourceLine.__init__

            def count(*arguments: Any, **options: Any) -> None:
                reached.set()
                time.sleep(0.01)
                slow(*arguments, **options)

            patch.setattr(SourceLine, "__init__", count)
            await asyncio.to_thread(reached.wait, 60)
            wire.leave()
            await asyncio.wait_for(wire.task, 60)
            await asyncio.sleep(0.3)
            reached.clear()
            await asyncio.sleep(0.3)
            assert not reached.is_set()
        assert queue.calls == []

    asyncio.run(script())


def test_a_client_that_is_slow_is_not_waited_for() -> None:
    async def script() -> None:
        wire = Wire(create_app(FakeModels("en-de"), ServingLimits(reading=0.05)))
        wire.say(b'{"q"', more=True)
        await asyncio.wait_for(wire.task, 60)
        assert wire.status == 408
        assert (b"connection", b"close") in wire.sent[0]["headers"]

    asyncio.run(script())


def test_a_client_that_leaves_while_it_asks_does_no_harm() -> None:
    async def script() -> None:
        wire = Wire(create_app(FakeModels("en-de")))
        wire.say(b'{"q"', more=True)
        await asyncio.sleep(0.01)
        wire.leave()
        await asyncio.wait_for(wire.task, 60)

    asyncio.run(script())


def test_a_complete_request_frees_its_place_among_those_that_arrive() -> None:
    async def script() -> None:
        models = FakeModels("en-de")
        queue = models.queue(EN_DE)
        queue.hold = asyncio.Event()
        app = create_app(models, replace(ServingLimits(), arriving_each=1))
        answered, arriving, refused = Wire(app), Wire(app), Wire(app)
        answered.say(BODY)
        await until(lambda: len(queue.calls) == 1)
        arriving.say(BODY[:9], more=True)
        await asyncio.sleep(0.05)
        refused.say(BODY)
        await asyncio.wait_for(refused.task, 60)
        assert (answered.status, arriving.status, refused.status) == (None, None, 429)
        arriving.say(BODY[9:])
        await until(lambda: len(queue.calls) == 2)
        queue.hold.set()
        await asyncio.wait_for(asyncio.gather(answered.task, arriving.task), 60)
        assert (answered.status, arriving.status) == (200, 200)

    asyncio.run(script())


def test_of_one_address_64_requests_may_arrive_at_the_same_time() -> None:
    async def script() -> None:
        app = create_app(FakeModels("en-de"))
        wires = [Wire(app) for _ in range(65)]
        for wire in wires:
            wire.say(BODY[:9], more=True)
        await until(lambda: wires[64].status is not None)
        assert [wire.status for wire in wires] == [*[None] * 64, 429]
        for wire in wires[:64]:
            wire.say(BODY[9:])
        await asyncio.wait_for(asyncio.gather(*(wire.task for wire in wires)), 60)
        assert [wire.status for wire in wires] == [*[200] * 64, 429]

    asyncio.run(script())


def test_more_at_the_same_time_than_there_are_places_is_refused() -> None:
    async def script() -> None:
        models = FakeModels("en-de")
        models.queue(EN_DE).hold = hold = asyncio.Event()
        limits = replace(ServingLimits(), concurrent=3, concurrent_each=2)
        app = create_app(models, limits)
        wires = [Wire(app) for _ in range(3)]
        for wire in wires:
            wire.say(BODY)
        await until(lambda: wires[2].status is not None)
        assert [wire.status for wire in wires] == [None, None, 429]
        hold.set()
        await asyncio.wait_for(asyncio.gather(*(wire.task for wire in wires)), 60)
        assert [wire.status for wire in wires] == [200, 200, 429]
        again = Wire(app)
        again.say(BODY)
        await asyncio.wait_for(again.task, 60)
        assert again.status == 200

    asyncio.run(script())


def test_a_bug_is_answered_with_500_and_the_server_goes_on() -> None:
    models = FakeModels("en-de")
    models.queue(EN_DE).error = ZeroDivisionError("never")
    app = create_app(models)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.post("/translate", json=QUESTION)
        assert (answer.status_code, answer.json()) == (500, {"error": "Internal server error"})
        models.queue(EN_DE).error = None
        assert client.post("/translate", json=QUESTION).status_code == 200
    assert models.closed
