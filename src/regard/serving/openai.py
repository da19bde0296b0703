"""The OpenAI API for models that write: completions, and the list of models."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from regard.errors import RegardError
from regard.serving.client_limits import Admission, ServingLimits
from regard.serving.completions import Completion, Likeliest, StreamedPiece, WriterQueue, logprobs
from regard.serving.refusals import RefusedError, openai_error, refusal_for, unknown_model
from regard.serving.request_bodies import ModelName, TextInputs, inputs, read_object
from regard.serving.served_models import Models

UNSUPPORTED = ("suffix", "logit_bias", "presence_penalty", "frequency_penalty")
JsonObject = dict[str, Any]

MAX_CHOICES = 16


class StreamOptions(Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class SamplingRequest(Struct):
    """Sampling options that completions and chat completions share."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(ge=0, le=1)] = 1.0
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES, description="number of answers to each prompt")] = 1
    stop: str | Annotated[list[str], Meta(max_length=4)] = []
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class CompletionRequest(SamplingRequest, kw_only=True):
    """A request to continue one or several prompts."""

    model: ModelName
    prompt: TextInputs = ""
    max_tokens: Annotated[int, Meta(ge=0, le=100_000)] = 16
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool = False


class OpenAI:
    """Handles requests for completions and for the list of models."""

    def __init__(self, models: Models, limits: ServingLimits, admission: Admission) -> None:
        self.served, self.limits, self.admission = models, limits, admission
        self.created = int(time.time())

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        self.admission.admit_bearer(request)
        return JSONResponse({"object": "list", "data": [self.description(name) for name in self.names]})

    async def model(self, request: Request) -> Response:
        self.admission.admit_bearer(request)
        name = request.path_params["name"]
        if name not in self.names:
            raise unknown_model(name)
        return JSONResponse(self.description(name))

    async def completions(self, request: Request) -> Response:
        client = self.admission.admit_bearer(request)
        asked = await read_object(request, CompletionRequest, UNSUPPORTED)
        generation = Generation(asked, self.writer(asked.model), client)
        if len(generation.rows) * generation.best_of > self.limits.batch >= 0:
            raise RefusedError(400, f"prompt: at most {self.limits.batch} completions for all prompts together")
        head = answer_head("cmpl", "text_completion", asked.model)
        if asked.stream:
            return generation.stream_response(self.chunks(generation), head)
        choices = [{"index": index, **each} for index, each in enumerate(await generation.write())]
        return JSONResponse({**head, "choices": choices, "usage": generation.usage()})

    async def chunks(self, generation: Generation) -> AsyncIterator[JsonObject]:
        """Yields the pieces of each choice, one choice after the other."""
        for index in range(len(generation.rows) * generation.asked.n):
            if generation.asked.echo:
                yield {"index": index, "text": generation.prompt(index), "logprobs": None, "finish_reason": None}
            async with aclosing(generation.stream(index)) as pieces:
                async for piece in pieces:
                    yield {"index": index, "text": piece.text, "logprobs": None, "finish_reason": piece.reason}

    @property
    def names(self) -> list[str]:
        """The names of all models; a translator is listed once for each direction, such as en-de."""
        served = self.served
        return list(dict.fromkeys([*served.writers, *served.encoders, *map(str, served.directions)]))

    def description(self, name: str) -> JsonObject:
        return {"id": name, "object": "model", "created": self.created, "owned_by": "local"}

    def writer(self, name: str) -> WriterQueue:
        queue = self.served.writers.get(name)
        if queue is None:
            raise unknown_model(name)
        return queue


class Generation:
    """Continues the prompts of one request."""

    def __init__(self, asked: CompletionRequest, queue: WriterQueue, client: JsonObject, field: str = "prompt") -> None:
        """Validates the request; `field` is the name of the field with the prompts, for error messages."""
        self.asked, self.queue, self.writer, self.client = asked, queue, queue.writer, client
        prompts = inputs(asked.prompt, field)
        self.rows = [self.writer.prompt(each) if isinstance(each, str) else each for each in prompts]
        self.best_of = max(asked.n, asked.best_of)
        self.stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        self.written = 0  # number of tokens written so far
        self.options = {
            "temperature": asked.temperature,
            "top_p": asked.top_p or 1e-6,
            "seed": random.getrandbits(31) if asked.seed is None else asked.seed,
            "max_tokens": max(1, asked.max_tokens),
            "beam": 1,
        }
        if asked.stream and (self.best_of > asked.n or asked.logprobs is not None):
            raise RefusedError(400, "stream: cannot be combined with best_of or logprobs")
        longest, size = self.writer.settings.model.max_length, self.writer.vocabulary.size
        for row in self.rows:
            if not all(0 <= token < size for token in row):
                raise RefusedError(400, f"{field}: token ids must be from 0 to {size - 1}")
            if len(row) + asked.max_tokens > longest:
                asked_for = f"{len(row)} tokens of input and {asked.max_tokens} of output"
                raise RefusedError(400, f"{field}: {asked_for} exceed the context of this model, {longest} tokens")

    async def write(self) -> list[JsonObject]:
        """Returns the choices for all prompts."""
        completions = [[Completion("", (), (), "length")] * self.asked.n] * len(self.rows)
        if self.asked.max_tokens:
            settings = self.writer.decoding({**self.options, "alternatives": self.best_of - 1})
            completions = await self.queue.complete(self.rows, self.stop, settings, **self.client)
        chosen = [(row, each) for row, some in zip(self.rows, completions, strict=True) for each in self.best(some)]
        self.written = sum(len(each.ids) for _, each in chosen)
        details = await self.details(chosen)
        return [
            {"text": self.prompt(index) + each.text, "logprobs": detail, "finish_reason": each.reason}
            for index, ((_, each), detail) in enumerate(zip(chosen, details, strict=True))
        ]

    def best(self, completions: list[Completion]) -> list[Completion]:
        """Returns `n` completions, the most probable ones if there are more."""
        if self.best_of > self.asked.n:
            completions = sorted(completions, key=lambda each: -sum(each.log_probabilities) / max(1, len(each.ids)))
        return [*completions, *[completions[-1]] * self.asked.n][: self.asked.n]

    async def details(self, chosen: Sequence[tuple[Sequence[int], Completion]]) -> list[JsonObject | None]:
        """Returns the log-probabilities of each choice, or None if the request does not have `logprobs`."""
        count, echo = self.asked.logprobs, self.asked.echo
        if count is None:
            return [None] * len(chosen)
        likeliest: list[Likeliest] = [[]] * len(chosen)
        if count or echo:
            likeliest = await self.queue.likeliest([[*row, *each.ids] for row, each in chosen], count, **self.client)
        pairs = zip(chosen, likeliest, strict=True)
        return [logprobs(self.writer, row, each, others, count, echo=echo) for (row, each), others in pairs]

    async def stream(self, index: int) -> AsyncGenerator[StreamedPiece, None]:
        """Yields the pieces of choice `index`."""
        row = self.rows[index // self.asked.n]
        settings = self.writer.decoding({**self.options, "seed": self.options["seed"] + index % self.asked.n})
        async with aclosing(self.queue.stream(row, self.stop, settings, **self.client)) as pieces:
            async for piece in pieces:
                self.written += piece.tokens
                yield piece

    def stream_response(self, choices: AsyncIterator[JsonObject], head: JsonObject) -> Response:
        """Streams the choices as server-sent events; raises BusyError if the queue is full."""
        self.queue.check_room(1)
        return event_stream(choices, head, self.usage if self.asked.stream_options.include_usage else None)

    def prompt(self, index: int) -> str:
        """Returns the prompt of choice `index` if the request has `echo`, otherwise an empty text."""
        return self.writer.vocabulary.decode(self.rows[index // self.asked.n]) if self.asked.echo else ""

    def usage(self) -> dict[str, int]:
        return describe_usage(sum(map(len, self.rows)), self.written)


def describe_usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def answer_head(prefix: str, kind: str, model: str) -> JsonObject:
    """Returns the leading fields shared by every response and every streamed chunk."""
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def event_stream(choices: AsyncIterator[JsonObject], head: JsonObject, usage: Any = None) -> Response:
    """Streams the choices as server-sent events, followed by `usage()` if it is set; caches must not store them."""

    def event(body: Mapping[str, Any]) -> str:
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"

    async def events() -> AsyncIterator[str]:
        begin = {"usage": None, **head} if usage else head
        try:
            async for choice in choices:
                yield event({**begin, "choices": [choice]})
        except (RefusedError, RegardError) as error:
            yield event(openai_error(refusal_for(error)))
            return
        if usage:
            yield event({**head, "choices": [], "usage": usage()})
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
