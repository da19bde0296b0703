"""Models that write and read for many clients: all share batches, and each gets the answer that it would get alone."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.model_loading import load_as
from regard.decoding.native.compiled_library import reason_unavailable
from regard.decoding.search_interface import Hypothesis
from regard.decoding.writer import Writer
from regard.model_folder import WEIGHTS
from regard.serving import served_models as module
from regard.serving.application import create_app
from regard.serving.client_limits import ServingLimits
from regard.serving.completions import WriterQueue
from regard.serving.encoder_endpoints import EncoderQueue
from regard.serving.refusals import BusyError, LateError
from regard.serving.scheduler import Scheduler
from regard.serving.served_models import Models
from tests.serving.fakes import FakeModels
from tests.serving.running import running
from tests.serving.toys import TEXTS, write_model

T = TypeVar("T")
Q = TypeVar("Q", bound=Scheduler)
ENGINES = ["native", "torch"] if reason_unavailable() is None else ["torch"]
both = pytest.mark.parametrize("engine", ENGINES)
LONG = 100_000
"""More tokens than any test waits for."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "gpt": write_model(place / "gpt", task="write"),
        "bert": write_model(place / "bert", task="fill"),
        "new gpt": write_model(place / "new" / "gpt", task="write", seed=1),
        "new bert": write_model(place / "new" / "bert", task="fill", seed=1),
    }


@pytest.fixture(scope="module")
def writers(folders: dict[str, Path]) -> dict[str, Writer]:
    torch.set_num_threads(1)  # which is faster for toys
    return {engine: load_as(Writer, folders["gpt"], engine=engine, threads=1) for engine in ENGINES}


@pytest.fixture(scope="module")
def embedder(folders: dict[str, Path]) -> Embedder:
    return load_as(Embedder, folders["bert"])


def run(queue: Callable[[], Q], work: Callable[[Q], Awaitable[T]]) -> T:
    """Returns the result of some work with a queue, which is closed afterwards."""

    async def all_of_it() -> T:
        opened = queue()
        try:
            return await asyncio.wait_for(work(opened), 300)
        finally:
            await opened.close()

    return asyncio.run(all_of_it())


async def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)


# Writers


@both
@pytest.mark.parametrize("options", [{}, {"temperature": 0.9}, {"temperature": 1.0, "alternatives": 2, "top_p": 0.8}])
def test_a_prompt_gets_the_same_text_whatever_shares_its_batch(
    writers: dict[str, Writer], engine: str, options: dict[str, Any]
) -> None:
    """Prompts of all lengths, each with its own seed and limit, have equal outputs, bit by bit in the native engine."""
    writer = writers[engine]
    work = [
        (
            writer.prompt(TEXTS[i % 4][: 3 + i % 7]),
            writer.decoding({"beam": 1, "max_tokens": 4 + i, "seed": i, **options}),
        )
        for i in range(12)
    ]

    async def all_at_once(queue: WriterQueue) -> list[list[Hypothesis]]:
        calls = (queue.write([row], each, [None], client=str(i % 3)) for i, (row, each) in enumerate(work))
        return [found for (found,) in await asyncio.gather(*calls)]

    found = run(lambda: WriterQueue(writer), all_at_once)
    for (row, own), outputs in zip(work, found, strict=True):
        (alone,) = writer.searcher.search([row], [own.max_tokens], own)
        assert [each.tokens for each in outputs] == [each.tokens for each in alone]
        if engine == "native":
            assert outputs == alone


@pytest.mark.skipif("native" not in ENGINES, reason="prompts join in the native engine")
def test_prompts_with_like_options_share_one_search(writers: dict[str, Writer]) -> None:
    writer, most = writers["native"], 0

    async def all_at_once(queue: WriterQueue) -> None:
        nonlocal most

        def watch(_tokens: Sequence[int]) -> bool:
            nonlocal most
            most = max(most, queue.running)
            assert len(queue._batchers) == 1
            return False

        settings = [writer.decoding({"beam": 1, "max_tokens": 20, "temperature": 1.0, "seed": n}) for n in range(20)]
        await asyncio.gather(*(queue.write([writer.prompt("A")], each, [watch], client=str(each)) for each in settings))

    run(lambda: WriterQueue(writer), all_at_once)
    assert most > 5


def test_prompts_share_small_batches(writers: dict[str, Writer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the native engine, prompts of equal length are read together."""
    writer, sizes = writers["torch"], list[int]()
    search = writer.searcher.search

    def counted(rows: Any, *arguments: Any) -> Any:
        sizes.append(len(rows))
        return search(rows, *arguments)

    monkeypatch.setattr(writer.searcher, "search", counted)

    async def all_at_once(queue: WriterQueue) -> None:
        settings = writer.decoding({"beam": 1, "max_tokens": 8})
        await asyncio.gather(*(queue.write([[5, 6, n]], settings, [None], client=str(n)) for n in range(7, 27)))

    run(lambda: WriterQueue(writer), all_at_once)
    assert sum(sizes) == 20
    assert len(sizes) <= 5


@both
@pytest.mark.parametrize("stop", [(), ("e",), ("zzz", "a")])
def test_streams_beside_others_are_the_whole_text(writers: dict[str, Writer], engine: str, stop: Sequence[str]) -> None:
    writer = writers[engine]
    rows = [writer.prompt(text[:6]) for text in TEXTS]
    settings = [writer.decoding({"beam": 1, "max_tokens": 20, "temperature": 0.8, "seed": n}) for n in range(4)]

    async def all_at_once(queue: WriterQueue) -> list[tuple[str, str | None]]:
        async def one(number: int) -> tuple[str, str | None]:
            pieces = [each async for each in queue.stream(rows[number], stop, settings[number])]
            assert [each.reason for each in pieces[:-1]] == [None] * (len(pieces) - 1)
            return "".join(each.text for each in pieces), pieces[-1].reason

        return await asyncio.gather(*map(one, range(4)))

    async def whole(queue: WriterQueue) -> list[tuple[str, str | None]]:
        found = [await queue.complete([row], stop, each) for row, each in zip(rows, settings, strict=True)]
        return [(made.text, made.reason) for ((made,),) in found]

    assert run(lambda: WriterQueue(writer), all_at_once) == run(lambda: WriterQueue(writer), whole)


@both
def test_a_long_stream_does_not_delay_others(writers: dict[str, Writer], engine: str) -> None:
    """Others are answered while it goes on; when its client leaves, its place is free."""
    writer = writers[engine]
    endless = writer.decoding({"beam": 1, "max_tokens": LONG})
    short = writer.decoding({"beam": 1, "max_tokens": 3, "temperature": 1.0, "seed": 2})

    async def work(queue: WriterQueue) -> None:
        pieces = queue.stream(writer.prompt("A dog"), (), endless, client="long")
        assert (await anext(pieces)).reason is None
        for _ in range(3):
            await queue.write([writer.prompt("A cat")], short, [None], client="short")
        assert queue.open_requests == queue.running == 1
        await pieces.aclose()
        assert (queue.open_requests, queue.waiting, queue.running) == (0, 0, 0)
        assert queue.counts.cancelled == 1
        await queue.write([writer.prompt("A cat")], short, [None])

    run(lambda: WriterQueue(writer), work)


@both
def test_late_and_cancelled_prompts_make_room(writers: dict[str, Writer], engine: str) -> None:
    writer = writers[engine]
    endless = writer.decoding({"beam": 1, "max_tokens": LONG})
    row = writer.prompt("A dog")

    async def work(queue: WriterQueue) -> None:
        with pytest.raises(LateError):
            await queue.write([row] * 3, endless, [None] * 3, deadline=time.monotonic() + 0.1)
        pieces = queue.stream(row, (), endless, deadline=time.monotonic() + 0.1)
        with pytest.raises(LateError):
            async for _ in pieces:
                pass
        call = asyncio.create_task(queue.write([row], endless, [None]))
        await until(lambda: queue.running)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (queue.open_requests, queue.waiting, queue.running) == (0, 0, 0)
        assert (queue.counts.late, queue.counts.cancelled) == (2, 1)

    run(lambda: WriterQueue(writer), work)


@both
def test_a_mistake_while_a_text_grows_is_raised_where_it_is_awaited(writers: dict[str, Writer], engine: str) -> None:
    writer = writers[engine]
    settings = writer.decoding({"beam": 1, "max_tokens": 20})

    def fail(_tokens: Sequence[int]) -> bool:
        raise ZeroDivisionError

    async def work(queue: WriterQueue) -> None:
        row = writer.prompt("A dog")
        good = asyncio.create_task(queue.write([row], settings, [None]))
        with pytest.raises(ZeroDivisionError):
            await queue.write([row], settings, [fail])
        (found,) = await good
        assert found[0].tokens == writer.searcher.search([row], [20], settings)[0][0].tokens

    run(lambda: WriterQueue(writer), work)


# Embedders


def test_texts_of_all_clients_are_embedded_together(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, embed_rows = list[int](), embedder.embed_rows

    def counted(rows: Any, *arguments: Any) -> Any:
        sizes.append(len(rows))
        return embed_rows(rows, *arguments)

    monkeypatch.setattr(embedder, "embed_rows", counted)
    texts = [f"{text} {n}" for n in range(10) for text in TEXTS]

    async def all_at_once(queue: EncoderQueue) -> list[Any]:
        found = await asyncio.gather(*(queue.embed([text], client=text) for text in texts))
        assert queue.counts.tokens_read == sum(tokens for _, tokens in found)
        return [vector for ((vector,), _) in found]

    found = run(lambda: EncoderQueue(embedder), all_at_once)
    monkeypatch.undo()
    assert sum(sizes) == len(texts)
    assert len(sizes) <= 5
    for text, vector in zip(texts, found, strict=True):
        assert np.allclose(vector, embedder([text])[0], atol=1e-5)


def test_a_full_queue_refuses_embeddings_and_completions(writers: dict[str, Writer], embedder: Embedder) -> None:
    models = FakeModels(writers={"gpt": writers[ENGINES[0]]}, encoders={"bert": embedder})
    with TestClient(create_app(models), base_url="http://localhost") as client:
        for queue in models.queues.values():

            def full(*_: Any, **__: Any) -> None:
                raise BusyError("full", 7.0)

            queue.check_room = full  # type: ignore[method-assign]
        for path, body in (
            ("completions", {"model": "gpt", "prompt": "A"}),
            ("completions", {"model": "gpt", "prompt": "A", "stream": True}),
            ("chat/completions", {"model": "gpt", "messages": [{"role": "user", "content": "A"}], "stream": True}),
            ("embeddings", {"model": "bert", "input": "A"}),
        ):
            answer = client.post(f"/v1/{path}", json=body)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
            assert answer.json()["error"]["type"] == "rate_limit_error"


def test_a_deadline_ends_completions_and_streams(writers: dict[str, Writer]) -> None:
    app = create_app(FakeModels(writers={"gpt": writers[ENGINES[0]]}), ServingLimits(answering=-1.0))
    with TestClient(app, base_url="http://localhost") as client:
        body = {"model": "gpt", "prompt": "A", "max_tokens": 3}
        assert client.post("/v1/completions", json=body).status_code == 504
        streamed = client.post("/v1/completions", json={**body, "stream": True})
        assert "not ready in time" in streamed.text


# Folders that change


def test_a_changed_folder_is_served_by_every_task(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    copies = [Path(shutil.copytree(folders[name], tmp_path / name)) for name in ("gpt", "bert")]

    def ask(address: str) -> tuple[str, list[float]]:
        body = {"model": "gpt", "prompt": "A dog", "max_tokens": 8, "temperature": 0}
        written = httpx.post(f"{address}v1/completions", json=body, timeout=60).json()
        read = httpx.post(f"{address}v1/embeddings", json={"model": "bert", "input": "A dog"}, timeout=60).json()
        return written["choices"][0]["text"], read["data"][0]["embedding"]

    models = Models.load(copies)
    with running(create_app(models)) as address:
        before = ask(address)
        old = models.queues
        for copy in copies:
            shutil.copy(folders[f"new {copy.name}"] / WEIGHTS, copy / ".new")
            (copy / ".new").replace(copy / WEIGHTS)
        end = time.monotonic() + 60
        while any(models.queues[name] is queue for name, queue in old.items()) and time.monotonic() < end:
            time.sleep(0.05)
        after = ask(address)
    assert before[0] != after[0]
    assert before[1] != after[1]
