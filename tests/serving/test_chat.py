"""Chat in OpenAI's interface: its own client, over a real socket, with a model that writes and one that translates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st
from starlette.testclient import TestClient

from regard.decoding.model_loading import load
from regard.decoding.pytorch_engine import writer_of
from regard.demo import GLASS
from regard.serving.application import create_app
from regard.serving.chat import TURNS, ChatMessage, conversation, trim_pieces
from regard.serving.client_limits import ServingLimits
from regard.serving.completions import StreamedPiece, WriterQueue
from regard.serving.served_models import Models
from tests.decoding.toys import toy
from tests.serving.fakes import FakeModels
from tests.serving.running import running

WRITER = writer_of(toy("write", max_length=200))
TIRED = "The animal didn't cross the street because it was too tired."
TALK: list[Any] = [
    {"role": "system", "content": "Dogs read."},
    {"role": "user", "content": "A dog?"},
    {"role": "assistant", "content": " It reads. "},
    {"role": "user", "content": [{"type": "text", "text": "A book?"}]},
]
PROMPT = "Dogs read.\n\nUser: A dog?\n\nAssistant: It reads.\n\nUser: A book?\n\nAssistant:"
ASKED: dict[str, Any] = {"model": "gpt", "messages": TALK, "max_completion_tokens": 12}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = Models.load([GLASS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Models, "writers", {"gpt": WriterQueue(WRITER)})
        with running(create_app(models)) as address:
            yield f"{address}v1"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key="unused", max_retries=0) as client:
        yield client


def offline(**options: Any) -> list[str]:
    settings = {"max_tokens": 12, "beam": 1, "temperature": 0.0, **options}
    found = WRITER.write([PROMPT], stop=TURNS, **settings)[0]
    return [found.text.strip(), *(each.text.strip() for each in found.alternatives)]


def test_the_conversation_is_a_text_that_the_model_goes_on_with(client: openai.OpenAI) -> None:
    assert conversation([ChatMessage("user", " hi \n")]) == "User: hi\n\nAssistant:"
    made = client.chat.completions.create(**ASKED, temperature=0)
    assert made.object == "chat.completion"
    assert made.choices[0].message.role == "assistant"
    assert made.choices[0].message.content == offline()[0] != ""
    assert made.usage is not None
    assert made.usage.prompt_tokens == len(WRITER.prompt(PROMPT))
    assert 0 < made.usage.completion_tokens <= 12
    older = client.chat.completions.create(model="gpt", messages=TALK, max_tokens=12, temperature=0)
    assert older.choices[0].message == made.choices[0].message
    whole = client.chat.completions.create(model="gpt", messages=TALK, temperature=0)  # as much as there is room for
    assert whole.usage is not None
    assert whole.usage.total_tokens <= 200


def test_several_are_drawn_by_their_seed(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(**ASKED, n=3, seed=7)
    assert [each.index for each in made.choices] == [0, 1, 2]
    texts = [each.message.content for each in made.choices]
    assert texts == offline(temperature=1.0, seed=7, alternatives=2)
    assert texts != [each.message.content for each in client.chat.completions.create(**ASKED, n=3, seed=8).choices]


@pytest.mark.parametrize("stop", [None, "e", ["zzz", "a", "b", "c"]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_is_the_same_text(client: openai.OpenAI, stop: Any, temperature: float) -> None:
    asked: dict[str, Any] = {**ASKED, "temperature": temperature, "seed": 3, "stop": stop}
    whole = client.chat.completions.create(**asked)
    pieces = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert {each.object for each in pieces} == {"chat.completion.chunk"}
    assert pieces[0].choices[0].delta.role == "assistant"
    told = [each.choices[0] for each in pieces if each.choices]
    assert "".join(each.delta.content or "" for each in told) == whole.choices[0].message.content
    assert [each.finish_reason for each in told] == [*[None] * (len(told) - 1), whole.choices[0].finish_reason]
    assert pieces[-1].choices == []
    assert pieces[-1].usage is not None
    assert all(each.usage is None for each in pieces[:-1])


def test_several_streams_come_one_after_the_other(client: openai.OpenAI) -> None:
    texts = ["", ""]
    for each in client.chat.completions.create(**ASKED, temperature=1, seed=7, n=2, stream=True):
        texts[each.choices[0].index] += each.choices[0].delta.content or ""
    assert texts[0] == offline(temperature=1.0, seed=7)[0]
    assert texts[1] == offline(temperature=1.0, seed=8)[0]


@given(st.lists(st.text(alphabet="a \n", max_size=3), max_size=6))
def test_white_space_around_a_streamed_answer_is_left_out(texts: list[str]) -> None:
    async def script() -> str:
        async def pieces() -> Any:
            for text in texts:
                yield StreamedPiece(text, 1)

        return "".join([each.text async for each in trim_pieces(pieces())])

    assert asyncio.run(script()) == "".join(texts).strip()


def test_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(**ASKED, temperature=0, logprobs=True, top_logprobs=8).choices[0]
    assert found.logprobs is not None
    content = found.logprobs.content or []
    written = b"".join(bytes(each.bytes or []) for each in content).decode(errors="replace")
    assert written.strip() == found.message.content
    for each in content:
        assert each.token.startswith("⟨") or bytes(each.bytes or []).decode() == each.token
        assert each.logprob == pytest.approx(max(other.logprob for other in each.top_logprobs), abs=1e-4)
        assert 8 <= len(each.top_logprobs) <= 9
    plain = client.chat.completions.create(**ASKED, temperature=0, logprobs=True).choices[0]
    assert plain.logprobs is not None
    assert [each.logprob for each in plain.logprobs.content or []] == [each.logprob for each in content]


def test_a_direction_translates_the_last_message_of_the_user(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["gpt", "en-fr"]
    talk: list[Any] = [{"role": "system", "content": "Translate."}, {"role": "user", "content": TIRED}]
    right = load(GLASS)(TIRED)
    made = client.chat.completions.create(model="en-fr", messages=talk, temperature=0.3, max_tokens=5)
    assert made.choices[0].message.content == right
    assert (made.object, made.choices[0].index, made.choices[0].finish_reason) == ("chat.completion", 0, "stop")
    assert made.choices[0].message.role == "assistant"
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens
    assert made.usage.prompt_tokens > 0
    assert made.usage.completion_tokens > 0
    with client.chat.completions.create(
        model="en-fr", messages=talk, stream=True, stream_options={"include_usage": True}
    ) as stream:
        pieces = list(stream)
    assert "".join(each.choices[0].delta.content or "" for each in pieces if each.choices) == right
    assert pieces[-1].usage == made.usage
    assert {piece.object for piece in pieces} == {"chat.completion.chunk"}
    assert [choice.index for piece in pieces for choice in piece.choices] == [0, 0]
    assert [choice.finish_reason for piece in pieces for choice in piece.choices] == [None, "stop"]


@pytest.mark.parametrize(("most", "length", "status"), [(5, 5, 200), (5, 6, 400), (0, 1, 400), (-1, 60_000, 200)])
def test_a_message_is_translated_up_to_the_limit(most: int, length: int, status: int) -> None:
    models = FakeModels("en-fr")
    with TestClient(create_app(models, ServingLimits(characters=most)), base_url="http://localhost") as client:
        asked = {"model": "en-fr", "messages": [{"role": "user", "content": "a" * length}]}
        assert client.post("/v1/chat/completions", json=asked).status_code == status


def test_many_clients_chat_at_once(address: str) -> None:
    right = load(GLASS)(TIRED)

    async def script() -> None:
        async with openai.AsyncOpenAI(base_url=address, api_key="unused", max_retries=0) as client:
            user: list[Any] = [{"role": "user", "content": TIRED}]
            asked = [("gpt", TALK) if n % 2 else ("en-fr", user) for n in range(16)]
            calls = [
                client.chat.completions.create(model=model, messages=talk, max_completion_tokens=12, temperature=0)
                for model, talk in asked
            ]
            made = [each.choices[0].message.content for each in await asyncio.gather(*calls)]
            assert made == [right, offline()[0]] * 8
            stream = await client.chat.completions.create(**ASKED, temperature=0, stream=True)
            assert "".join([each.choices[0].delta.content or "" async for each in stream]) == offline()[0]

    asyncio.run(script())


@pytest.mark.parametrize(
    ("values", "status", "param"),
    [
        ({"model": "none"}, 404, None),
        ({"model": None}, 400, "model"),
        ({"messages": None}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": ["hello"]}, 400, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [1]}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "dog " * 500}]}, 400, "messages"),
        ({"max_tokens": 10_000}, 400, "messages"),
        ({"max_completion_tokens": 0}, 400, "max_completion_tokens"),
        ({"temperature": 3}, 400, "temperature"),
        ({"n": 1000}, 400, "n"),
        ({"stop": ["a"] * 5}, 400, "stop"),
        ({"top_logprobs": 21}, 400, "top_logprobs"),
        ({"logprobs": True, "stream": True}, 400, "stream"),
        ({"logit_bias": {"1": 5}}, 400, "logit_bias"),
        ({"tools": [{}]}, 400, "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"stream_options": "x"}, 400, "stream_options"),
        ({"model": "en-fr", "n": 2}, 400, "n"),
        ({"model": "en-fr", "messages": [{"role": "system", "content": "a"}]}, 400, "messages"),
        ({"model": "en-fr", "messages": [{"role": "user", "content": "a" * 60_000}]}, 400, "messages"),
    ],
)
def test_errors_have_the_form_of_openai(values: dict[str, Any], status: int, param: str | None) -> None:
    app = create_app(FakeModels("en-fr", writers={"gpt": WRITER}))
    with TestClient(app, base_url="http://localhost") as client:
        talk = [{"role": "user", "content": "a"}]
        answer = client.post("/v1/chat/completions", json={"model": "gpt", "messages": talk, **values})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
