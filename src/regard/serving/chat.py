"""The chat completions of the OpenAI API, for models that write and for models that translate.

A model that translates answers with a translation of the last user message. A model that writes continues the
conversation, which is passed to it as a text:

    The system message.

    User: The first user message.

    Assistant: The first answer.

    User: The second user message.

    Assistant:
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.serving.client_limits import ServingLimits
from regard.serving.completions import StreamedPiece
from regard.serving.openai import (
    UNSUPPORTED,
    CompletionRequest,
    Generation,
    JsonObject,
    OpenAI,
    SamplingRequest,
    answer_head,
    describe_usage,
    event_stream,
)
from regard.serving.refusals import RefusedError, unknown_model
from regard.serving.request_bodies import read_object
from regard.serving.translation_service import TranslationCall, TranslationService
from regard.tokens.language_directions import Direction

ROLES = {"system": "", "developer": "", "user": "User: ", "assistant": "Assistant: "}
TURNS = ("\nUser:", "\nAssistant:")
"""Stop texts of an answer, after which the model would write the next message of the conversation."""
NOT_IN_CHAT = (*UNSUPPORTED, "tools", "functions", "audio", "web_search_options", "prediction")


class ResponseFormat(Struct, frozen=True):
    """The format of the answer; only text is supported."""

    type: Literal["text"] = "text"


class ContentPart(Struct):
    """A text that is part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Struct):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]


class ChatRequest(SamplingRequest, kw_only=True):
    """A request for the next message of a conversation, or for a translation of its last user message."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model folder, or a direction such as en-de")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    response_format: ResponseFormat = ResponseFormat()


class Chat:
    """Handles requests for chat completions."""

    def __init__(self, openai: OpenAI, translating: TranslationService, limits: ServingLimits) -> None:
        self.openai, self.translating, self.limits = openai, translating, limits

    def routes(self) -> list[BaseRoute]:
        return [Route("/v1/chat/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        client = self.openai.admission.admit_bearer(request)
        asked = await read_object(request, ChatRequest, NOT_IN_CHAT)
        head = answer_head("chatcmpl", "chat.completion.chunk" if asked.stream else "chat.completion", asked.model)
        models = self.translating.models
        if asked.model in models.writers:
            return await self.continue_conversation(asked, head, client)
        direction = next((each for each in models.directions if asked.model == str(each)), None)
        if direction is None:
            raise unknown_model(asked.model)
        return await self.translate(direction, asked, head, client)

    async def continue_conversation(self, asked: ChatRequest, head: JsonObject, client: JsonObject) -> Response:
        """Returns the next message of the assistant, written by a language model."""
        queue, prompt = self.openai.writer(asked.model), conversation(asked.messages)
        room = queue.writer.settings.model.max_length - len(queue.writer.prompt(prompt))
        sampling = {name: getattr(asked, name) for name in SamplingRequest.__struct_fields__}
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        completion = CompletionRequest(
            **{**sampling, "stop": [*stop, *TURNS]},
            model=asked.model,
            prompt=prompt,
            max_tokens=asked.max_completion_tokens or asked.max_tokens or max(1, room),
            logprobs=asked.top_logprobs if asked.logprobs else None,
        )
        generation = Generation(completion, queue, client, "messages")
        if asked.stream:
            return generation.stream_response(self.chunks(generation), head)
        choices = [
            message_choice(index, each["text"].strip(), each["finish_reason"], chat_logprobs(each["logprobs"]))
            for index, each in enumerate(await generation.write())
        ]
        return JSONResponse({**head, "choices": choices, "usage": generation.usage()})

    async def chunks(self, generation: Generation) -> AsyncIterator[JsonObject]:
        """Yields the pieces of each choice, one choice after the other."""
        for index in range(generation.asked.n):
            yield delta(index, {"role": "assistant", "content": ""})
            async with aclosing(generation.stream(index)) as pieces:
                async for piece in trim_pieces(pieces):
                    if piece.text:
                        yield delta(index, {"content": piece.text})
                    if piece.reason:
                        yield delta(index, {}, piece.reason)

    async def translate(
        self, direction: Direction, asked: ChatRequest, head: JsonObject, client: JsonObject
    ) -> Response:
        """Returns a translation of the last user message; sampling options have no effect."""
        texts = [message_text(message) for message in asked.messages if message.role == "user"]
        if not texts:
            raise RefusedError(400, "messages: there is no user message to translate")
        if len(texts[-1]) > self.limits.characters >= 0:
            raise RefusedError(400, f"messages: at most {self.limits.characters} characters are translated")
        if asked.n > 1 or asked.logprobs:
            raise RefusedError(400, "n: a model that translates returns one answer, without logprobs")
        (answer,) = await self.translating.texts(texts[-1:], [direction], TranslationCall(**client))
        queue = self.translating.models.queue(direction)
        parts = await queue.in_thread(queue.translator.read, 1, texts[-1], direction.target)
        written = len(answer.translation.tokens) if answer.translation else 0
        usage = describe_usage(sum(len(part.ids) for part in parts), written)
        if not asked.stream:
            return JSONResponse({**head, "choices": [message_choice(0, answer.text, "stop")], "usage": usage})

        async def chunks() -> AsyncIterator[JsonObject]:
            yield delta(0, {"role": "assistant", "content": answer.text})
            yield delta(0, {}, "stop")

        return event_stream(chunks(), head, (lambda: usage) if asked.stream_options.include_usage else None)


def message_text(message: ChatMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def conversation(messages: list[ChatMessage]) -> str:
    """Formats the messages as the text that the model continues."""
    return "\n\n".join([*(ROLES[each.role] + message_text(each).strip() for each in messages), "Assistant:"])


async def trim_pieces(pieces: AsyncGenerator[StreamedPiece, None]) -> AsyncIterator[StreamedPiece]:
    """Yields the pieces without leading and trailing white space."""
    begun, held = False, ""
    async for piece in pieces:
        text = held + piece.text if begun else piece.text.lstrip()
        begun = begun or bool(text)
        kept = text.rstrip()
        held = text[len(kept) :]
        yield piece._replace(text=kept)


def message_choice(index: int, text: str, reason: str, logprobs: JsonObject | None = None) -> JsonObject:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def delta(index: int, change: JsonObject, reason: str | None = None) -> JsonObject:
    return {"index": index, "delta": change, "logprobs": None, "finish_reason": reason}


def chat_logprobs(found: Mapping[str, Any] | None) -> JsonObject | None:
    """Converts the log-probabilities of a completion to the format of chat completions."""
    if found is None:
        return None
    tops = found["top_logprobs"] or [None] * len(found["tokens"])
    content = [
        {**describe_token(token, value), "top_logprobs": [describe_token(*other) for other in (top or {}).items()]}
        for token, value, top in zip(found["tokens"], found["token_logprobs"], tops, strict=True)
    ]
    return {"content": content, "refusal": None}


def describe_token(token: str, value: float) -> JsonObject:
    """Returns a token with its log-probability and bytes; single-byte tokens are shown in hex, e.g. ⟨E2⟩."""
    byte = re.fullmatch("⟨([0-9A-F]{2})⟩", token)
    return {"token": token, "logprob": value, "bytes": [int(byte[1], 16)] if byte else list(token.encode())}
