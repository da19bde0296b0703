"""OpenAI's interface for models that write and models that embed: completions, embeddings, and what there is."""

from __future__ import annotations

import base64
import json
import random
import sys
import time
import uuid
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from regard.errors import RegardError
from regard.serving.completions import Completion, Likeliest, Piece, complete, logprobs, stream
from regard.serving.limits import Admission, Limits
from regard.serving.models import Models
from regard.serving.queues import WriterQueue
from regard.serving.reading import bearer
from regard.serving.refusals import RefusedError, openai_error, refusal_of
from regard.text.doctor import SURROGATE

MOST_CHOICES, MOST_STOPS, MOST_LOGPROBS = 16, 4, 5


class OpenAI:
    """The answers of one server."""

    def __init__(self, models: Models, limits: Limits, admission: Admission) -> None:
        self.served, self.limits, self.admission = models, limits, admission
        self.created = int(time.time())

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
        ]

    # What is asked

    async def models(self, request: Request) -> Response:
        self.admit(request)
        return JSONResponse({"object": "list", "data": [self.described(name) for name in self.names]})

    async def model(self, request: Request) -> Response:
        self.admit(request)
        name = request.path_params["name"]
        if name not in self.names:
            raise unknown(name)
        return JSONResponse(self.described(name))

    async def completions(self, request: Request) -> Response:
        self.admit(request)
        body = await read_object(request)
        name = text_of(body, "model")
        queue = self.writer(name)
        asked = Asked(body, queue, self.who(request))
        if len(asked.rows) * asked.best_of > self.limits.batch >= 0:
            raise RefusedError(400, f"prompt: at most {self.limits.batch} completions of all prompts together")
        head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
        }
        if body.get("stream"):
            queue.check_room(1)
            return streamed(self.events(asked, head))
        choices = [choice(index, each) for index, each in enumerate(await asked.write())]
        return JSONResponse({**head, "choices": choices, "usage": asked.usage()})

    async def embeddings(self, request: Request) -> Response:
        self.admit(request)
        body = await read_object(request)
        name = text_of(body, "model")
        queue = self.served.embedders.get(name)
        if queue is None:
            raise unknown(name)
        embedder = queue.embedder
        texts = [each if isinstance(each, str) else embedder.vocabulary.decode(each) for each in inputs(body, "input")]
        size = sum(map(len, texts))
        if len(texts) > self.limits.batch >= 0 or size > self.limits.characters >= 0:
            raise RefusedError(400, f"input: at most {self.limits.batch} texts and {self.limits.characters} characters")
        form = body.get("encoding_format") or "float"
        if form not in ("float", "base64"):
            raise RefusedError(400, "encoding_format: must be float or base64")
        width = embedder.settings.model.width
        if body.get("dimensions") not in (None, width):
            raise RefusedError(400, f"dimensions: this model's vectors have {width}, and cannot be cut")
        vectors, tokens = await queue.embed(texts, **self.who(request))
        data = [
            {"object": "embedding", "index": index, "embedding": packed(vector.tolist(), form)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": name, "usage": usage})

    async def events(self, asked: Asked, head: dict[str, Any]) -> AsyncIterator[str]:
        """A completion piece by piece, the choices one after the other."""
        usage = asked.usage() if asked.tells_usage else None
        extra = {} if usage is None else {"usage": None}
        try:
            for index in range(len(asked.rows) * asked.count):
                if asked.echo:
                    piece = choice(
                        index, {"text": asked.text(index // asked.count), "logprobs": None, "finish_reason": None}
                    )
                    yield event({**head, "choices": [piece], **extra})
                async with aclosing(asked.streamed(index)) as pieces:
                    async for found in pieces:
                        told = {"text": found.text, "logprobs": None, "finish_reason": found.reason}
                        yield event({**head, "choices": [choice(index, told)], **extra})
        except (RefusedError, RegardError) as error:
            yield event(openai_error(refusal_of(error)))
            return
        if usage is not None:
            yield event({**head, "choices": [], "usage": asked.usage()})
        yield DONE

    # What is there

    @property
    def names(self) -> list[str]:
        found = self.served
        return list(dict.fromkeys([*found.writers, *found.embedders, *map(str, found.directions)]))

    def writer(self, name: str) -> WriterQueue:
        queue = self.served.writers.get(name)
        if queue is None:
            raise unknown(name)
        return queue

    def who(self, request: Request) -> dict[str, Any]:
        """Returns the client, and when its answer must be ready."""
        return {"client": request.state.client, "deadline": time.monotonic() + self.limits.answering}

    def described(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self.created, "owned_by": "local"}

    def admit(self, request: Request) -> None:
        try:
            request.state.client = self.admission.admit(request.state.client, bearer(request))
        except RefusedError as error:
            raise RefusedError(429 if error.status == 429 else 401, error.message, error.retry_after) from None


class Asked:
    """What a request for completions says, each value as it may be."""

    def __init__(self, body: Mapping[str, Any], queue: WriterQueue, who: dict[str, Any]) -> None:
        self.queue, self.writer, self.who = queue, queue.writer, who
        writer = self.writer
        prompts = inputs(body, "prompt") if body.get("prompt") is not None else [""]
        self.rows = [writer.prompt(each) if isinstance(each, str) else each for each in prompts]
        self.written = 0
        self.count = number(body, "n", 1, 1, MOST_CHOICES, whole=True)
        self.best_of = max(self.count, number(body, "best_of", self.count, 1, MOST_CHOICES, whole=True))
        self.echo, streaming = bool(body.get("echo")), body.get("stream_options") or {}
        if not isinstance(streaming, dict):
            raise RefusedError(400, "stream_options: must be an object")
        self.tells_usage = bool(streaming.get("include_usage"))
        self.logprobs = (
            None if body.get("logprobs") is None else number(body, "logprobs", 0, 0, MOST_LOGPROBS, whole=True)
        )
        self.length = number(body, "max_tokens", 16, 0, 100_000, whole=True)
        stop = body.get("stop") or []
        self.stop = [stop] if isinstance(stop, str) else stop
        self.options = {
            "temperature": number(body, "temperature", 1.0, 0, 2),
            "top_p": number(body, "top_p", 1.0, 0, 1) or 1e-6,
            "seed": number(body, "seed", random.getrandbits(31), 0, 2**63, whole=True),
            "max_tokens": max(1, self.length),
            "beam": 1,
        }
        self.refuse(body)

    def refuse(self, body: Mapping[str, Any]) -> None:
        """Refuses what this server cannot do, rather than leave it out."""
        if (
            not isinstance(self.stop, list)
            or not all(isinstance(s, str) for s in self.stop)
            or len(self.stop) > MOST_STOPS
        ):
            raise RefusedError(400, f"stop: must be a text or a list of at most {MOST_STOPS}")
        for name in ("suffix", "logit_bias", "presence_penalty", "frequency_penalty"):
            if body.get(name):
                raise RefusedError(400, f"{name}: is not supported by this server")
        if body.get("stream") and (self.best_of > self.count or self.logprobs is not None):
            raise RefusedError(400, "stream: works without best_of and logprobs only")
        longest, size = self.writer.settings.model.max_length, self.writer.vocabulary.size
        for row in self.rows:
            if not row or not all(isinstance(i, int) and 0 <= i < size for i in row):
                raise RefusedError(400, f"prompt: tokens are numbers from 0 to {size - 1}")
            if len(row) + self.length > longest:
                told = f"has a context of {longest} tokens; you ask for {len(row)} and {self.length} of the answer"
                raise RefusedError(400, f"prompt: this model {told}")

    async def write(self) -> list[dict[str, Any]]:
        """Returns the choices for all prompts."""
        found = [[Completion("", (), (), "length")] * self.count] * len(self.rows)
        if self.length:
            settings = self.writer.decoding({**self.options, "alternatives": self.best_of - 1})
            found = await complete(self.queue, self.rows, self.stop, settings, **self.who)
        chosen = [(row, each) for row, every in zip(self.rows, found, strict=True) for each in self.best(every)]
        self.written = sum(len(each.ids) for _, each in chosen)
        details = await self.details(chosen)
        before = [self.writer.vocabulary.decode(row) if self.echo else "" for row, _ in chosen]
        return [
            {"text": prompt + each.text, "logprobs": detail, "finish_reason": each.reason}
            for prompt, (_, each), detail in zip(before, chosen, details, strict=True)
        ]

    def best(self, found: list[Completion]) -> list[Completion]:
        """Returns as many as are asked for, the most probable first if there are more."""
        if self.best_of > self.count:
            found = sorted(found, key=lambda each: -sum(each.log_probabilities) / max(1, len(each.ids)))
        return [*found, *[found[-1]] * self.count][: self.count]

    async def details(self, chosen: Sequence[tuple[Sequence[int], Completion]]) -> list[dict[str, Any] | None]:
        """Returns the log-probabilities of each choice, if they are asked for."""
        count = self.logprobs
        if count is None:
            return [None] * len(chosen)
        read: list[Likeliest] = [[]] * len(chosen)
        if count or self.echo:
            read = await self.queue.likeliest([[*row, *each.ids] for row, each in chosen], count, **self.who)
        return [
            logprobs(self.writer, row, each, likeliest, count, echo=self.echo)
            for (row, each), likeliest in zip(chosen, read, strict=True)
        ]

    async def streamed(self, index: int) -> AsyncGenerator[Piece, None]:
        """Yields choice `index` piece by piece."""
        row = self.rows[index // self.count]
        settings = self.writer.decoding({**self.options, "seed": self.options["seed"] + index % self.count})
        async with aclosing(stream(self.queue, row, self.stop, settings, **self.who)) as pieces:
            async for piece in pieces:
                self.written += piece.tokens
                yield piece

    def text(self, prompt: int) -> str:
        return self.writer.vocabulary.decode(self.rows[prompt])

    def usage(self) -> dict[str, int]:
        read = sum(map(len, self.rows))
        return {"prompt_tokens": read, "completion_tokens": self.written, "total_tokens": read + self.written}


def choice(index: int, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"index": index, **found}


def event(told: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(told, ensure_ascii=False)}\n\n"


def streamed(events: AsyncIterator[str]) -> Response:
    """Events as they come, which no cache keeps."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


DONE = "data: [DONE]\n\n"
"""What comes after the last event."""


def packed(vector: Sequence[float], form: str) -> Any:
    """A vector as a list, or as its bytes: 32 bits each, the lowest first."""
    if form == "float":
        return list(vector)
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def inputs(body: Mapping[str, Any], name: str) -> list[Any]:
    """Texts, or rows of tokens: one or several of them."""
    given = body.get(name)
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list) and given and all(type(each) is int for each in given):
        given = [given]
    if not isinstance(given, list) or not given:
        raise RefusedError(400, f"{name}: must be a text, a list of texts, or tokens")
    for each in given:
        if not isinstance(each, str) and not (isinstance(each, list) and each and all(type(i) is int for i in each)):
            raise RefusedError(400, f"{name}: must be a text, a list of texts, or tokens")
    return [SURROGATE.sub("\N{REPLACEMENT CHARACTER}", each) if isinstance(each, str) else each for each in given]


def number(body: Mapping[str, Any], name: str, default: Any, least: float, most: float, *, whole: bool = False) -> Any:
    """A number of a request within its bounds."""
    value = body.get(name)
    if value is None:
        return default
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        raise RefusedError(400, f"{name}: must be a {'whole ' if whole else ''}number from {least:g} to {most:g}")
    return value


def text_of(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedError(400, f"{name}: is missing")
    return value


async def read_object(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RefusedError(400, "the body must be a JSON object")
    return body


def unknown(name: str) -> RefusedError:
    return RefusedError(404, f"The model `{name[:100]}` does not exist, or does not do this")
