"""OpenAI's interface, with its own client on a real socket, and the errors of requests that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.pytorch_engine import writer_of
from regard.serving.application import create_app
from regard.serving.client_limits import KeyFile, make_key
from tests.decoding.toys import toy
from tests.serving.fakes import FakeModels
from tests.serving.running import running

WRITER = writer_of(toy("write", max_length=64))
EMBEDDER = Embedder(toy("embed", tie="none"))
PROMPT = "A dog reads"


def create(keys: KeyFile | None = None) -> Any:
    return create_app(FakeModels(writers={"gpt": WRITER}, encoders={"bert": EMBEDDER}), keys=keys)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create()) as address:
        yield f"{address}v1"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key="unused", max_retries=0) as client:
        yield client


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["gpt", "bert"]
    assert client.models.retrieve("gpt").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_a_completion_equals_the_text_of_the_writer(client: openai.OpenAI) -> None:
    made = client.completions.create(model="gpt", prompt=PROMPT, max_tokens=8, temperature=0)
    offline = WRITER.write([PROMPT], max_tokens=8, temperature=0.0, beam=1)[0]
    assert made.choices[0].text == offline.text
    assert made.choices[0].finish_reason == ("length" if offline.finished == "length" else "stop")
    assert made.usage is not None
    assert made.usage.prompt_tokens == len(WRITER.prompt(PROMPT))
    assert made.usage.completion_tokens == len(offline.tokens)
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens


def test_prompts_are_texts_or_tokens_and_each_has_its_choices(client: openai.OpenAI) -> None:
    tokens = WRITER.prompt(PROMPT)
    asked: dict[str, Any] = {"model": "gpt", "max_tokens": 4, "temperature": 1.0, "seed": 5}
    one = client.completions.create(prompt=PROMPT, n=2, **asked)
    for prompt in (tokens, [tokens], [PROMPT]):
        assert [each.text for each in client.completions.create(prompt=prompt, n=2, **asked).choices] == [
            each.text for each in one.choices
        ]
    several = client.completions.create(prompt=[PROMPT, "She"], n=2, **asked)
    assert [each.index for each in several.choices] == [0, 1, 2, 3]
    assert [each.text for each in several.choices[:2]] == [each.text for each in one.choices]
    other = client.completions.create(prompt=PROMPT, **{**asked, "seed": 6, "max_tokens": 16})
    assert (
        other.choices[0].text != client.completions.create(prompt=PROMPT, **{**asked, "max_tokens": 16}).choices[0].text
    )


def test_the_best_of_several_is_chosen(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "gpt", "prompt": PROMPT, "max_tokens": 6, "seed": 5, "logprobs": 0}
    drawn = client.completions.create(n=6, **asked).choices
    best = client.completions.create(n=1, best_of=6, **asked).choices[0]

    def value(each: Any) -> float:
        return sum(each.logprobs.token_logprobs) / max(1, len(each.logprobs.token_logprobs))

    assert value(best) == pytest.approx(max(map(value, drawn)))


@pytest.mark.parametrize("stop", [None, "e", ["zzz", "a"]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_is_the_same_text(client: openai.OpenAI, stop: Any, temperature: float) -> None:
    asked: dict[str, Any] = {"model": "gpt", "prompt": PROMPT, "max_tokens": 12, "temperature": temperature, "seed": 3}
    whole = client.completions.create(stop=stop, **asked)
    pieces = list(client.completions.create(stop=stop, stream=True, stream_options={"include_usage": True}, **asked))
    assert "".join(each.choices[0].text for each in pieces if each.choices) == whole.choices[0].text
    assert [each.choices[0].finish_reason for each in pieces if each.choices][:-1] == [None] * (len(pieces) - 2)
    assert pieces[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert pieces[-1].choices == []
    assert pieces[-1].usage is not None
    if stop is None:
        assert pieces[-1].usage == whole.usage


def test_log_probabilities(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "gpt", "prompt": PROMPT, "max_tokens": 3, "temperature": 0, "logprobs": 3}
    found = client.completions.create(**asked).choices[0]
    assert found.logprobs is not None
    tokens, values = found.logprobs.tokens, found.logprobs.token_logprobs
    assert tokens is not None
    assert values is not None
    assert len(tokens) == len(values) == len(found.logprobs.text_offset or []) == len(found.logprobs.top_logprobs or [])
    for token, value, top in zip(tokens, values, found.logprobs.top_logprobs or [], strict=True):
        assert top[token] == value == pytest.approx(max(top.values()), abs=1e-4)
        assert 3 <= len(top) <= 4
    echoed = client.completions.create(**{**asked, "max_tokens": 0}, echo=True).choices[0]
    assert echoed.text == PROMPT
    assert echoed.logprobs is not None
    scored = WRITER.score(PROMPT).token_log_probabilities
    assert (echoed.logprobs.token_logprobs or [])[-len(scored) :] == pytest.approx(scored, abs=1e-4)
    assert "".join(echoed.logprobs.tokens or []).strip() == PROMPT


def test_embeddings(client: openai.OpenAI, address: str) -> None:
    texts = ["a dog", "a cat sleeps"]
    offline = EMBEDDER(texts)
    found = client.embeddings.create(model="bert", input=texts)  # this client asks for base64
    assert np.allclose([each.embedding for each in found.data], offline, atol=1e-5)
    assert found.usage.prompt_tokens == sum(len(row.ids) for row in EMBEDDER.rows(texts))
    plain = httpx.post(f"{address}/embeddings", json={"model": "bert", "input": "a dog"}, timeout=60).json()
    assert np.allclose(plain["data"][0]["embedding"], offline[0], atol=1e-5)
    assert (plain["object"], plain["data"][0]["object"], plain["data"][0]["index"]) == ("list", "embedding", 0)
    assert [each.index for each in found.data] == [0, 1]
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="bert", input=texts, dimensions=3)


def test_many_clients_at_once(address: str) -> None:
    async def script() -> None:
        async with openai.AsyncOpenAI(base_url=address, api_key="unused", max_retries=0) as client:
            asked: dict[str, Any] = {"model": "gpt", "max_tokens": 4, "temperature": 0}
            made = await asyncio.gather(*(client.completions.create(prompt=f"She {n}", **asked) for n in range(20)))
            for n, each in enumerate(made):
                assert each.choices[0].text == WRITER.write([f"She {n}"], max_tokens=4, temperature=0.0, beam=1)[0].text
            stream = await client.completions.create(prompt="She", stream=True, **asked)
            assert "".join([each.choices[0].text async for each in stream])

    asyncio.run(script())


@pytest.mark.parametrize(
    ("values", "status", "param"),
    [
        ({"model": "none"}, 404, None),
        ({"model": None}, 400, "model"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": [1.5]}, 400, "prompt"),
        ({"prompt": [10**9]}, 400, "prompt"),
        ({"prompt": ["a"] * 400, "n": 3}, 400, "prompt"),
        ({"prompt": "dog " * 500}, 400, "prompt"),
        ({"max_tokens": 10_000}, 400, "prompt"),
        ({"max_tokens": "many"}, 400, "max_tokens"),
        ({"temperature": 3}, 400, "temperature"),
        ({"n": 1000}, 400, "n"),
        ({"stop": ["a"] * 5}, 400, "stop"),
        ({"logprobs": 6}, 400, "logprobs"),
        ({"logit_bias": {"1": 5}}, 400, "logit_bias"),
        ({"suffix": "end"}, 400, "suffix"),
        ({"stream": True, "best_of": 3}, 400, "stream"),
        ({"stream_options": "x"}, 400, "stream_options"),
    ],
)
def test_errors_have_the_form_of_openai(values: dict[str, Any], status: int, param: str | None) -> None:
    with TestClient(create(), base_url="http://localhost") as client:
        answer = client.post("/v1/completions", json={"model": "gpt", "prompt": "a", **values})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert param is None or "`" not in error["message"]


def test_unknown_addresses_are_answered_in_json() -> None:
    with TestClient(create(), base_url="http://localhost") as client:
        for answer in (client.get("/v1/nothing"), client.get("/v1/completions"), client.post("/v1/completions")):
            assert answer.status_code in (400, 404, 405)
            assert answer.json()["error"]["type"] == "invalid_request_error"


def test_keys(tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys")
    with running(create(KeyFile(tmp_path / "keys"))) as address:
        wrong = openai.OpenAI(base_url=f"{address}v1", api_key="wrong", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with openai.OpenAI(base_url=f"{address}v1", api_key=key, max_retries=0) as client:
            assert len(client.models.list().data) == 2


def test_a_client_that_leaves_a_stream_ends_it(address: str) -> None:
    body = {"model": "gpt", "prompt": "A", "max_tokens": 60, "stream": True, "temperature": 1, "n": 16}
    with httpx.stream("POST", f"{address}/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        next(response.iter_lines())
    again = httpx.post(f"{address}/completions", json={"model": "gpt", "prompt": "A", "max_tokens": 1}, timeout=20)
    assert again.status_code == 200
