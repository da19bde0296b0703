"""regard serve: a process that answers, tells of it, and ends in good order."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from regard.cli import build_parser
from regard.demo import GLASS
from regard.serving.client_limits import KeyFile
from tests.cli.running import call
from tests.cli.serving import Process

TIRED = "The animal didn't cross the street because it was too tired."
TAKEN = "regard_scheduler_requests_total"


@pytest.fixture(scope="module")
def server() -> Iterator[Process]:
    server = Process(str(GLASS))
    yield server
    server.process.kill()
    server.process.communicate()


def test_a_real_model_is_served_and_ended(server: Process) -> None:
    assert "en → fr" in server.line
    assert "5000" not in server.line
    client = httpx.Client(base_url=server.address, timeout=60)
    answer = client.post("/translate", json={"q": [TIRED, TIRED], "source": "auto", "target": "fr"}).json()
    assert answer["translatedText"] == ["L'animal n'a pas traversé la rue parce qu'il était trop fatigué."] * 2
    kept = client.post("/translate", data={"q": "The [X4X] was %s.", "source": "en", "target": "fr"}).json()
    assert kept["translatedText"].count("[X4X]") == kept["translatedText"].count("%s") == 1
    long = client.post("/translate", json={"q": "x" * 5_000, "source": "en", "target": "fr"})
    assert long.status_code in (200, 400)
    request = urllib.request.Request(f"{server.address}/health", headers={"Host": "evil.example"})  # noqa: S310
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=30)  # noqa: S310
    many, before = {"q": [TIRED] * 300, "source": "en", "target": "fr"}, server.count(TAKEN)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/translate", json=many)
        server.wait_for_more(TAKEN, before)
        code, log = server.end(signal.SIGTERM)
        assert len(waiting.result().json()["translatedText"]) == 300
    client.close()
    assert code == 0
    assert [record["status"] for record in log][:2] == [200, 200]
    assert log[0]["texts"] == 2
    assert all(word not in json.dumps(log) for word in ("animal", "Traceback"))


@pytest.mark.parametrize("line", [["serve", "model"], ["look"]])
def test_a_server_listens_on_this_machine_only_unless_another_host_is_given(line: list[str]) -> None:
    assert build_parser().parse_args(line).host == "127.0.0.1"
    assert build_parser().parse_args([*line, "--host", "::1"]).host == "::1"


def test_a_key_is_made_and_printed_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    done = call(capsys, "serve", "--make-key", "weblate", "--keys", str(path))
    assert done.code == 0
    found = KeyFile(path).find(done.out.strip())
    assert found is not None
    assert found.name == "weblate"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "pass one or more model folders"),
        (["nowhere"], "nowhere: no such folder"),
        ([str(GLASS), "--port", "70000"], "65535"),
        ([str(GLASS), "--tls-cert", "a.pem"], "must be used together"),
        ([str(GLASS), "--look", "--keys", "keys.txt"], "leave out --look, or --keys"),
        ([str(GLASS), "--keys", "nowhere.txt"], "--make-key"),
        ([str(GLASS), str(GLASS)], "both translate en → fr"),
        (["--make-key", "bob"], "--keys FILE"),
        ([str(GLASS), "--rate", "often"], "--rate"),
        ([str(GLASS), "--port", "0", "--pivot", "zz"], "zz"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    done = call(capsys, "serve", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
