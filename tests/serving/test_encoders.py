"""Hugging Face's interface: its own client on a real socket gets what the models give offline."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from huggingface_hub import InferenceClient
from starlette.testclient import TestClient

from regard.decoding.fill_classify_embed import Classifier, Filler
from regard.serving.application import create_app
from regard.serving.client_limits import ServingLimits
from regard.serving.encoder_endpoints import EncoderQueue
from tests.decoding.toys import toy
from tests.serving.fakes import FakeModels
from tests.serving.running import running

FILLER = Filler(toy("fill"))
CLASSIFIER = Classifier(toy("classify", data={"labels": ["good", "bad", "so-so"]}))
LABELLER = Classifier(toy("classify", data={"labels": ["O", "B-x", "I-x"], "carrier": "word"}))
MODELS: dict[str, Any] = {"bert": FILLER, "reviews": CLASSIFIER, "names": LABELLER}
GAP = "A dog [MASK] a book."


def close(probability: float) -> Any:
    return pytest.approx(probability, abs=1e-5)  # in a batch with others, it differs in the last digits


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(FakeModels(encoders=MODELS))) as address:
        yield address


def client_of(models: dict[str, Any] | None = None, limits: ServingLimits | None = None) -> TestClient:
    return TestClient(create_app(FakeModels(encoders=models or MODELS), limits), base_url="http://localhost")


def test_gaps_are_filled_for_its_client(address: str) -> None:
    found = InferenceClient(f"{address}fill-mask").fill_mask(GAP, top_k=3)
    expected = FILLER.fill(GAP, 3)[0]
    assert [(each.token_str, each.token, each.sequence) for each in found] == [
        (each.token, each.id, each.text) for each in expected
    ]
    assert [each.score for each in found] == [close(each.probability) for each in expected]


def test_several_gaps_and_texts_have_lists(address: str) -> None:
    two = "[MASK] dog [MASK] a book."
    answer = httpx.post(f"{address}fill-mask", json={"inputs": [GAP, two]}, timeout=60).json()
    expected = [[each.text for each in gap] for text in (GAP, two) for gap in FILLER.fill(text)]
    assert [[each["sequence"] for each in gap] for gap in (answer[0], *answer[1])] == expected
    alone = httpx.post(f"{address}fill-mask", json={"inputs": two}, timeout=60).json()
    assert [[each["sequence"] for each in gap] for gap in alone] == expected[1:]


def test_texts_and_pairs_are_classified_for_its_client(address: str) -> None:
    found: Any = InferenceClient(f"{address}text-classification").text_classification("A dog reads.")
    (expected,) = CLASSIFIER.classify(["A dog reads."])
    assert {each.label: each.score for each in found} == {
        label: close(probability) for label, probability in expected.probabilities.items()
    }
    assert found[0].label == expected.label
    body = {"inputs": ["A dog", {"text": "A dog", "text_pair": "She reads"}], "parameters": {"top_k": 1}}
    answer = httpx.post(f"{address}text-classification", json=body, timeout=60).json()
    labels = CLASSIFIER.classify(["A dog", ("A dog", "She reads")])
    assert answer == [[{"label": each.label, "score": close(each.probability)}] for each in labels]


def test_words_are_classified_for_its_client(address: str) -> None:
    text = " A dog  reads."
    found = InferenceClient(f"{address}token-classification").token_classification(text)
    (labels,) = LABELLER.label_words([text.split()])
    assert [(each.word, each.entity, each.score) for each in found] == [
        (word, label.label, close(label.probability)) for word, label in zip(text.split(), labels, strict=True)
    ]
    assert [text[each.start : each.end] for each in found] == text.split()
    answer = httpx.post(f"{address}token-classification", json={"inputs": [text, ""]}, timeout=60).json()
    assert [[each["word"] for each in words] for words in answer] == [text.split(), []]


def test_clients_share_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()

    def counting(use: Any) -> Any:
        def counted(rows: Any, *options: Any, **named: Any) -> Any:
            sizes.append(len(rows))
            return use(rows, *options, **named)

        return counted

    monkeypatch.setattr(FILLER, "fill_rows", counting(FILLER.fill_rows))
    monkeypatch.setattr(CLASSIFIER, "label_rows", counting(CLASSIFIER.label_rows))
    texts = [f"A dog [MASK] {number}" for number in range(30)]

    async def all_at_once() -> None:
        fill, label = (EncoderQueue(MODELS[name]) for name in ("bert", "reviews"))
        filled = await asyncio.gather(*(fill.fill([text], 2, client=text) for text in texts))
        labelled = await asyncio.gather(*(label.label([text], client=text) for text in texts))
        await asyncio.gather(fill.close(), label.close())
        assert sum(sizes) == 60
        assert len(sizes) <= 10
        assert [gap[0].token for ((gap,),) in filled] == [FILLER.fill(text, 2)[0][0].token for text in texts]
        assert [each.label for (each,) in labelled] == [CLASSIFIER(text) for text in texts]

    asyncio.run(all_at_once())


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("fill-mask", {"inputs": "A dog"}, 400, "there is no gap in the text"),
        ("fill-mask", {"inputs": "[MASK] " * 300}, 400, "inputs: at most 1000 tokens"),
        ("fill-mask", {"inputs": f"[MASK] {'dog ' * 30}"}, 400, "tokens, but this model reads at most"),
        ("fill-mask", {"inputs": []}, 400, "inputs: "),
        ("fill-mask", {}, 400, "inputs: is missing"),
        ("fill-mask", [GAP], 400, "the body must be a JSON object"),
        ("fill-mask", {"inputs": GAP, "parameters": {"top_k": 0}}, 400, "top_k"),
        ("fill-mask", {"inputs": GAP, "parameters": {"targets": ["a"]}}, 400, "unknown field targets"),
        ("fill-mask", {"inputs": GAP, "model": "reviews"}, 404, "`reviews` does not exist"),
        ("text-classification", {"inputs": ["a"] * 1001}, 400, "inputs: at most 1000 texts"),
        ("text-classification", {"inputs": "a" * 50_001}, 400, "and 50000 characters"),
        ("text-classification", {"inputs": {"text": "a"}}, 400, "text_pair"),
        ("text-classification", {"inputs": "a", "model": "names"}, 404, "`names` does not exist"),
        ("token-classification", {"inputs": "dog " * 40}, 400, "longer than 16 tokens"),
        ("token-classification", {"inputs": "a", "parameters": {"aggregation_strategy": "first"}}, 400, "unknown"),
    ],
)
def test_mistakes_are_refused_with_a_reason(path: str, body: Any, status: int, reason: str) -> None:
    with client_of() as client:
        answer = client.post(f"/{path}", json=body)
    assert answer.status_code == status
    assert reason in answer.json()["error"]


def test_a_model_is_named_only_where_there_are_several() -> None:
    with client_of({"bert": FILLER, "other": FILLER}) as client:
        answer = client.post("/fill-mask", json={"inputs": GAP})
        assert (answer.status_code, answer.json()["error"]) == (400, "model: specify one of bert, other")
        assert client.post("/fill-mask", json={"inputs": GAP, "model": "other"}).status_code == 200
        answer = client.post("/text-classification", json={"inputs": "A dog"})
        assert (answer.status_code, answer.json()["error"]) == (404, "This server has no model to classify")


def test_an_answer_has_a_deadline() -> None:
    with client_of(limits=ServingLimits(answering=-1.0)) as client:
        for path in ("fill-mask", "text-classification", "token-classification"):
            assert client.post(f"/{path}", json={"inputs": GAP}).status_code == 504


def test_a_client_that_leaves_is_not_worked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 0
    fill_rows = FILLER.fill_rows

    def slow_rows(some: Any, count: int) -> Any:
        nonlocal rows
        rows += len(some)
        time.sleep(0.2)
        return fill_rows(some, count)

    monkeypatch.setattr(FILLER, "fill_rows", slow_rows)
    monkeypatch.setattr("regard.serving.encoder_endpoints.MAX_BATCH_TOKENS", 1)
    models, body = FakeModels(encoders=MODELS), json.dumps({"inputs": [GAP] * 100}).encode()
    head = f"POST /fill-mask HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with running(create_app(models)) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(head.encode() + body)
            while not rows:
                time.sleep(0.01)
        queue = models.encoders["bert"]
        end = time.monotonic() + 30
        while queue.open_requests or queue.running or queue.waiting:
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.5)
        after = rows
        time.sleep(0.5)
        assert rows == after < 90
