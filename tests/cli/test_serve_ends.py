"""regard serve under load: told to end, it answers what it has accepted; killed, it needs no repair."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from regard.cli.load_generator import LoadReport, load, question
from regard.cli.serving_benchmark import invent_sentences
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.demo import GLASS
from tests.cli.running import tree
from tests.cli.serving import Process

CLIENTS = 20
TEXTS = invent_sentences("en")[:50]


@pytest.fixture(scope="module")
def answers() -> list[str]:
    return [each.text for each in load_as(Translator, GLASS).translate(TEXTS)]


def under_load(server: Process, answers: list[str], how: signal.Signals) -> tuple[LoadReport, int]:
    """What clients see of a server that is sent a signal in the middle, and its exit code."""
    bodies = [{"q": text, "source": "en", "target": "fr"} for text in TEXTS]
    questions = [question(server.address, *each) for each in zip(bodies, answers, strict=True)]
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(load, server.address, questions, clients=CLIENTS, seconds=60)
        server.wait_for_more('regard_requests_total{path="/translate"', 2 * CLIENTS)
        code, _ = server.end(how)
        return seen.result(180), code  # a client may wait for an answer when the time of all is over


def test_a_server_that_is_told_to_end_loses_no_request(answers: list[str]) -> None:
    seen, code = under_load(Process(str(GLASS)), answers, signal.SIGTERM)
    assert code == 0
    assert seen.answered == seen.asked > CLIENTS, seen
    assert not seen.errors
    assert seen.refused == CLIENTS  # each has asked until nobody listened any more


def test_a_server_that_was_killed_needs_no_repair(
    answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = tree(GLASS)
    first = Process(str(GLASS))
    file = {"file": ("a.txt", TEXTS[0].encode())}
    sent = httpx.post(f"{first.address}/translate_file", files=file, data={"source": "en", "target": "fr"}, timeout=60)
    assert sent.status_code == 200
    seen, code = under_load(first, answers, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert seen.wrong == 0
    assert seen.answered > CLIENTS
    assert tree(GLASS) == before
    again = Process(str(GLASS), port=urlsplit(first.address).port or 0)  # in the same place
    try:
        body = {"q": TEXTS, "source": "en", "target": "fr"}
        assert httpx.post(f"{again.address}/translate", json=body, timeout=60).json() == {"translatedText": answers}
        fetched = httpx.get(sent.json()["translatedFileUrl"], timeout=60)
        assert fetched.text.strip() == answers[0]  # what the first one had finished
    finally:
        code, _ = again.end(signal.SIGTERM)
    assert code == 0
