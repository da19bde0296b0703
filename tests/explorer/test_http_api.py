"""The explorer on the web: what it answers, and whom it does not."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import torch
import uvicorn
from safetensors.torch import load
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from regard.cli.look import listen, server_config
from regard.explorer import http_api
from regard.explorer.http_api import create_app, routes
from regard.explorer.model_explorer import Explorer
from regard.serving import uvicorn_server
from tests.explorer.conftest import IMPORTS, INDEX
from tests.explorer.toys import GREEDY, TEXT, contents

RUN = {"text": TEXT, "decode": GREEDY}


@pytest.fixture
def explorer() -> Explorer:
    return Explorer(contents("translate", norm="pre", tie="all"), "toy")


@pytest.fixture
def client(explorer: Explorer, page: Path) -> Iterator[TestClient]:
    with TestClient(create_app(explorer, page), base_url="http://localhost:8000") as client:
        yield client


def error_of(response: Any) -> str:
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    told: str = response.json()["error"]
    assert "\n" not in told
    return told


# Several models


def test_each_model_has_a_page_of_its_own_and_names_the_others(explorer: Explorer, page: Path) -> None:
    second = Explorer(contents("write"), "second", about="a GPT", start={"view": "decoding", "t": 3})
    third = Explorer(contents("fill"), "third")
    client = TestClient(create_app(explorer, page, others=[second, third]), base_url="http://localhost")
    names = ["toy", "second", "third"]
    for address, here in (("/", "toy"), ("/models/second/", "second"), ("/models/third/", "third")):
        about = client.get(f"{address}api/model").json()
        assert about["name"] == here
        assert [each["name"] for each in about["models"]] == names
        for each in about["models"]:
            there = urljoin(f"http://localhost{address}", each["address"])
            assert client.get(f"{there}api/model").json()["name"] == each["name"]
            assert client.get(there).text == INDEX
    about = client.get("/models/second/api/model").json()
    assert (about["about"], about["start"]) == ("a GPT", {"view": "decoding", "t": 3})
    assert client.get("/models/fourth/").status_code == 404


def test_the_page_of_any_model_may_be_linked_to_but_not_its_answers(explorer: Explorer, page: Path) -> None:
    second = Explorer(contents("write"), "second")
    client = TestClient(create_app(explorer, page, others=[second]), base_url="http://localhost")
    foreign = {"sec-fetch-site": "cross-site"}
    assert client.get("/models/second/", headers=foreign).status_code == 200
    assert client.get("/models/second/api/model", headers=foreign).status_code == 403


# Answers


def test_a_stored_run_can_be_requested_again(client: TestClient, explorer: Explorer) -> None:
    answer = client.post("/api/run", json=RUN).json()
    assert answer == explorer.find(answer["run"]).answer
    assert client.get(f"/api/run/{answer['run']}").json() == answer
    assert "no longer stored" in error_of(client.get("/api/run/0123"))
    assert client.get("/api/run/0123").status_code == 404


def test_tensors_come_as_safetensors_with_their_axes(client: TestClient, explorer: Explorer) -> None:
    run = explorer.run(RUN)
    names = ["decoder.layers.0.self_attention.masked", "decoder.lens.ids", "attribution.heads", "logits"]
    for kind, dtype in (("f32", torch.float32), ("f16", torch.float16)):
        response = client.get(f"/api/run/{run.name}/tensors?names={','.join(names)}&dtype={kind}")
        assert response.headers["content-type"] == "application/octet-stream"
        tensors = load(response.content)
        assert set(tensors) == set(names)
        assert tensors["decoder.lens.ids"].dtype == torch.int32
        masked = tensors[names[0]]
        assert masked.dtype == dtype
        assert torch.equal(masked.isinf(), run[names[0]].isinf())
        assert (masked[:, 0, 1:] == -torch.inf).all()
        assert torch.allclose(masked.float().clamp(min=-99), run[names[0]].clamp(min=-99), atol=1e-2)
        (size,) = struct.unpack("<Q", response.content[:8])
        about = json.loads(response.content[8 : 8 + size])["__metadata__"]
        assert about[f"axes.{names[0]}"] == "head query:target key:target"
    unknown = client.get(f"/api/run/{run.name}/tensors?names=logits,nothing")
    assert (unknown.status_code, "nothing" in error_of(unknown)) == (404, True)
    assert "dtype: must be" in error_of(client.get(f"/api/run/{run.name}/tensors?names=logits&dtype=f8"))
    assert "names: is missing" in error_of(client.get(f"/api/run/{run.name}/tensors"))


def test_every_address_answers(client: TestClient, explorer: Explorer) -> None:
    assert client.get("/api/health").json() == {"ok": True}
    assert client.get("/api/model").json() == explorer.describe() | {"models": []}
    name = "decoder.layers.0.cross_attention.1.qk"
    assert load(client.get(f"/api/weights?name={name}&rows=0:3").content)[name].shape == (3, 16)
    assert client.get(f"/api/weights/summary?name={name}").json()["shape"] == [16, 16]
    assert len(client.get("/api/embeddings/near?side=source&id=300&k=3").json()["cosine"]) == 3
    assert len(client.get("/api/embeddings/map?side=target&n=5&ids=7,9").json()["ids"]) == 7
    assert client.get("/api/positions?side=source&n=4").json()["rows"] == 4
    assert load(client.get("/api/positions/tensor?side=source&n=4").content)["positions"].shape == (4, 16)
    explorer.run(RUN)
    assert 'see("weights"' in client.get("/api/source?name=encoder.layers.0.self_attention.weights").json()["code"]


def test_ablations_are_answered_and_remembered(client: TestClient, explorer: Explorer) -> None:
    run = explorer.run(RUN)
    found = client.post("/api/ablate", json={"run": run.name, "what": "heads", "op": "zero", "targets": None}).json()
    assert found["kinds"] == ["encoder.self_attention", "decoder.self_attention", "decoder.cross_attention"]
    assert len(run.ablations) == 1
    assert client.post("/api/ablate", json={"run": run.name, "what": "heads", "op": "zero"}).json() == found
    found = client.post("/api/ablate", json={"run": run.name, "what": "sublayers", "op": "mean"}).json()
    assert set(found) == {"sublayers"}
    assert client.post("/api/ablate", json={"run": "x"}).status_code == 404


def test_runs_are_exported(client: TestClient, explorer: Explorer) -> None:
    run = explorer.run(RUN)
    assert client.get(f"/api/export/{run.name}.json").json()["run"] == run.name
    assert set(load(client.get(f"/api/export/{run.name}.safetensors").content)) == set(run.names())
    page = client.get(f"/api/export/{run.name}.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "regard-data" in page.text
    for wrong in (f"{run.name}.exe", "x.json", run.name):
        assert client.get(f"/api/export/{wrong}").status_code == 404


def test_requests_at_the_same_time_wait_for_each_other(client: TestClient) -> None:
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        found[number] = client.post("/api/run", json={**RUN, "text": f"dog {number % 3}"}).json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(9):
        assert found[number]["steps"] == found[number % 3]["steps"]


# Refusals


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("get", "/api/nothing", 404, "Not Found"),
        ("get", "/api/weights", 400, "name: is missing"),
        ("get", "/api/weights?name=x", 404, "no weight"),
        ("get", "/api/embeddings/near?side=source&id=x", 400, "id: must be a whole number"),
        ("get", "/api/embeddings/near?side=source&id=1&k=99", 400, "k: must be a whole number <= 50"),
        ("get", "/api/embeddings/map?side=middle", 400, "side: must be source or target"),
        ("get", "/api/positions?side=source&n=0", 400, "n: must be a whole number >= 1"),
        ("get", "/api/source?name=x", 404, "no recorded run"),
        ("get", "/api/run", 405, "Method Not Allowed"),
        ("post", "/api/model", 405, "Method Not Allowed"),
    ],
)
def test_errors_are_reported_in_one_line(client: TestClient, method: str, path: str, status: int, told: str) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert told in error_of(response)


def test_bodies_are_objects_of_limited_length(client: TestClient) -> None:
    typed = {"Content-Type": "application/json"}
    for content in (b"", b"{", b"[1]", b"\xff", b"[" * 100_000):
        response = client.post("/api/run", content=content, headers=typed)
        assert (response.status_code, "JSON" in error_of(response)) == (400, True)
    long = client.post("/api/run", content=b'{"text": "' + b"x" * 1_000_001 + b'"}', headers=typed)
    assert (long.status_code, "longer than 1,000,000 bytes" in error_of(long)) == (413, True)


def test_large_weights_are_refused(page: Path) -> None:
    big = Explorer(contents("embed", width=64, hidden=16_000), "toy")
    client = TestClient(create_app(big, page), base_url="http://localhost")
    name = "encoder.layers.0.feed_forward.rise.weight"
    assert client.get(f"/api/weights?name={name}").status_code == 413
    assert client.get(f"/api/weights?name={name}&rows=0:10").status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:8000", "192.168.0.7:80", "me.example"]
)
def test_it_answers_to_its_names(explorer: Explorer, page: Path, host: str) -> None:
    client = TestClient(create_app(explorer, page, ["me.example"]), base_url="http://localhost")
    assert client.get("/api/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "", "::1"])
def test_it_does_not_answer_to_other_names(client: TestClient, host: str) -> None:
    for path in ("/", "/static/explorer-app.js", "/api/model"):
        response = client.get(path, headers={"Host": host})
        assert response.status_code == 400
        assert "does not answer to the name" in error_of(response)


def test_other_sites_are_refused(client: TestClient) -> None:
    response = client.post("/api/run", json=RUN, headers={"Sec-Fetch-Site": "cross-site"})
    assert (response.status_code, error_of(response)) == (403, "this server accepts requests only from its own page")
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link to the page
    assert client.post("/api/run", json=RUN, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


# The page


def test_the_page_is_served(client: TestClient, page: Path) -> None:
    index = client.get("/")
    assert index.text == INDEX
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    for path, kind in (
        ("explorer-app.js", "text/javascript"),
        ("views/one.js", "text/javascript"),
        ("style.css", "text/css"),
    ):
        response = client.get(f"/static/{path}")
        assert response.content == (page / path).read_bytes()
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.js", "%2e%2e/secret.js", "views/../../secret.js", "..%2fsecret.js", "/etc/passwd", "%2fetc%2fpasswd",
        "views", "", "nothing.js", "..\\secret.js", "explorer-app.js%00", "link.js",
    ],
)  # fmt: skip
def test_nothing_else_is_served(client: TestClient, page: Path, path: str) -> None:
    (page / "link.js").symlink_to(page.parent / "secret.js")
    response = client.get(f"/static/{path}")
    assert response.status_code == 404
    assert "secret" not in response.text or "no such file" in error_of(response)


def test_the_content_policy_forbids_other_origins(client: TestClient) -> None:
    digest = base64.b64encode(hashlib.sha256(IMPORTS.encode()).digest()).decode()
    for path in ("/", "/api/model", "/static/explorer-app.js", "/api/nothing"):
        headers = client.get(path).headers
        policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == f"'self' 'sha256-{digest}'"
        assert policy["connect-src"] == "'self'"
        assert policy["style-src"] == "'self' 'unsafe-inline'"
        assert policy["img-src"] == "'self' data: blob:"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_missing_page_is_reported(explorer: Explorer, tmp_path: Path) -> None:
    client = TestClient(create_app(explorer, tmp_path / "nowhere"), base_url="http://localhost")
    assert client.get("/").status_code == 404
    assert client.get("/api/health").status_code == 200


def test_it_can_be_a_part_of_a_larger_application(explorer: Explorer, page: Path) -> None:
    app = Starlette(routes=[Mount("/look", routes=routes(explorer, page))])
    client = TestClient(app)
    assert client.get("/look/").text == INDEX
    assert client.get("/look/static/explorer-app.js").status_code == 200
    assert client.get("/look/api/model").json()["name"] == "toy"


# Other sites, and slow clients


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:8000"}, 200),
        ({"Origin": "HTTP://LOCALHOST:8000"}, 200),
        ({"Origin": "http://localhost", "Host": "localhost:80"}, 200),
        ({"Origin": "https://localhost", "Host": "localhost"}, 200),  # behind a proxy with TLS
        ({"Origin": "http://[::1]:8000", "Host": "[::1]:8000"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
    ],
)
def test_pages_of_other_origins_are_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.post("/api/run", json=RUN, headers=headers).status_code == status
    assert client.get("/api/model", headers=headers).status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_bodies_of_other_types_than_json_are_refused(client: TestClient, kind: str) -> None:
    """A page of another site can send these without asking the server first."""
    for path in ("/api/run", "/api/ablate"):
        response = client.post(path, content=json.dumps(RUN), headers={"Content-Type": kind} if kind else {})
        assert (response.status_code, "send the request as application/json" in error_of(response)) == (415, True)
    typed = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/api/run", content=json.dumps(RUN), headers=typed).status_code == 200


@pytest.fixture
def port(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server as `regard look` starts it, whose time limits are short."""
    monkeypatch.setattr(http_api, "BODY_TIMEOUT", 0.3)
    monkeypatch.setattr(uvicorn_server, "HEAD_TIMEOUT", 0.6)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(explorer, ["127.0.0.1"]))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def send(port: int, content: bytes) -> bytes:
    """Sends bytes to a server and returns all that it answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(content)
        answer = b""
        while part := connection.recv(10_000):
            answer += part
    return answer


POST = b"POST /api/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def test_slow_heads_and_bodies_are_ended(port: int) -> None:
    began = time.monotonic()
    assert send(port, b"") == send(port, b"GET /api/health HTTP/1.1\r\nHo") == b""  # no head arrives
    answer = send(port, POST + b'Content-Length: 100\r\n\r\n{"text": ')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.3 seconds" in answer
    assert time.monotonic() - began < 5
    assert send(port, b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").endswith(
        b'{"ok":true}'
    )


def test_a_request_has_one_host(port: int) -> None:
    answer = send(
        port, b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"several Host headers" in answer


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_fault(capfd: pytest.CaptureFixture[str], port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    assert send(port, b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").endswith(
        b'{"ok":true}'
    )
    assert "Traceback" not in capfd.readouterr().err
