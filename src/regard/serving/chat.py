"""Chat in OpenAI's interface: a model that writes goes on with the conversation, one that translates translates.

A model that writes has learnt to go on with a text, and a conversation is one:

    What the system says.

    User: What the user says.

    Assistant: What was answered.

    User: What the user says then.

    Assistant:
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import RegardError
from regard.serving.completions import Piece
from regard.serving.limits import Limits
from regard.serving.openai import (
    DONE,
    Asked,
    OpenAI,
    event,
    number,
    read_object,
    streamed,
    text_of,
    unknown,
)
from regard.serving.refusals import RefusedError, openai_error, refusal_of
from regard.serving.translation import Asked as AskedFor, Translating
from regard.text.directions import Direction
from regard.text.doctor import SURROGATE

ROLES = {"system": "", "developer": "", "user": "User: ", "assistant": "Assistant: "}
TURNS = ("\nUser:", "\nAssistant:")
"""Where an answer ends: the model would go on with what others say."""
MOST_LIKELIEST = 20
UNKNOWN = ("tools", "functions", "audio", "web_search_options", "prediction")


class Chat:
    """The answers of one server."""

    def __init__(self, openai: OpenAI, translating: Translating, limits: Limits) -> None:
        self.openai, self.translating, self.limits = openai, translating, limits

    def routes(self) -> list[BaseRoute]:
        return [Route("/v1/chat/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        self.openai.admit(request)
        body = await read_object(request)
        name, messages = text_of(body, "model"), messages_of(body)
        for each in UNKNOWN:
            if body.get(each):
                raise RefusedError(400, f"{each}: is not supported by this server")
        form = body.get("response_format")
        if form and not (isinstance(form, dict) and form.get("type") == "text"):
            raise RefusedError(400, "response_format: must be text")
        direction = direction_of(name, self.translating)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}
        if name in self.translating.models.writers:
            return await self.go_on(name, body, messages, head, self.openai.who(request))
        if direction is None:
            raise unknown(name)
        return await self.translate(direction, body, messages, head, request.state.client)

    # Models that write

    async def go_on(
        self,
        name: str,
        body: Mapping[str, Any],
        messages: list[tuple[str, str]],
        head: dict[str, Any],
        who: dict[str, Any],
    ) -> Response:
        """What the assistant says next."""
        asked = self.asked(name, body, conversation(messages), who)
        if body.get("stream"):
            asked.queue.check_room(1)
            return streamed(self.events(asked, head))
        choices = [
            said(index, each["text"].strip(), each["finish_reason"], likeliest(each["logprobs"]))
            for index, each in enumerate(await asked.write())
        ]
        return JSONResponse({**head, "object": "chat.completion", "choices": choices, "usage": asked.usage()})

    def asked(self, name: str, body: Mapping[str, Any], prompt: str, who: dict[str, Any]) -> Asked:
        """A request for a chat as one for a completion."""
        queue = self.openai.writer(name)
        writer = queue.writer
        room = writer.settings.model.max_length - len(writer.prompt(prompt))
        likely = number(body, "top_logprobs", 0, 0, MOST_LIKELIEST, whole=True)
        named = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        most = number(body, named, max(1, room), 1, 100_000, whole=True)
        same = {key: body.get(key) for key in SHARED}
        try:
            asked = Asked({**same, "prompt": prompt, "max_tokens": most}, queue, who)
        except RefusedError as error:
            raise RefusedError(error.status, error.message.replace("prompt: ", "messages: ", 1)) from None
        if body.get("logprobs"):
            if body.get("stream"):
                raise RefusedError(400, "stream: works without logprobs only")
            asked.logprobs = likely
        asked.stop = [*asked.stop, *TURNS]
        return asked

    async def events(self, asked: Asked, head: dict[str, Any]) -> AsyncIterator[str]:
        """The choices one after the other, each piece by piece."""
        extra: dict[str, Any] = {"usage": None} if asked.tells_usage else {}
        head = {**head, "object": "chat.completion.chunk"}
        try:
            for index in range(asked.count):
                yield event({**head, "choices": [piece(index, {"role": "assistant", "content": ""})], **extra})
                async with aclosing(asked.streamed(index)) as pieces:
                    async for found in trimmed(pieces):
                        if found.text:
                            yield event({**head, "choices": [piece(index, {"content": found.text})], **extra})
                        if found.reason:
                            yield event({**head, "choices": [piece(index, {}, found.reason)], **extra})
        except (RefusedError, RegardError) as error:
            yield event(openai_error(refusal_of(error)))
            return
        if asked.tells_usage:
            yield event({**head, "choices": [], "usage": asked.usage()})
        yield DONE

    # Models that translate

    async def translate(
        self,
        direction: Direction,
        body: Mapping[str, Any],
        messages: list[tuple[str, str]],
        head: dict[str, Any],
        client: str,
    ) -> Response:
        """The last message of the user in the other language; how to draw tokens is no question here."""
        texts = [text for role, text in messages if role == "user"]
        if not texts:
            raise RefusedError(400, "messages: the last one of the user is translated, and there is none")
        if len(texts[-1]) > self.limits.characters >= 0:
            raise RefusedError(400, f"messages: at most {self.limits.characters} characters are translated")
        if number(body, "n", 1, 1, 16, whole=True) > 1 or body.get("logprobs"):
            raise RefusedError(400, "n: one translation is made, and without logprobs")
        asked = AskedFor(client, time.monotonic() + self.limits.answering)
        (answer,) = await self.translating.texts([texts[-1]], [direction], asked)
        translator = self.translating.models.queue(direction).translator
        parts = await asyncio.to_thread(translator.read, 1, texts[-1], direction.target)
        read = sum(len(part.ids) for part in parts)
        written = len(answer.translation.tokens) if answer.translation else 0
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        if not body.get("stream"):
            choices = [said(0, answer.text, "stop")]
            return JSONResponse({**head, "object": "chat.completion", "choices": choices, "usage": usage})

        async def events() -> AsyncIterator[str]:
            told = {**head, "object": "chat.completion.chunk"}
            yield event({**told, "choices": [piece(0, {"role": "assistant", "content": answer.text})]})
            yield event({**told, "choices": [piece(0, {}, "stop")]})
            if isinstance(body.get("stream_options"), dict) and body["stream_options"].get("include_usage"):
                yield event({**told, "choices": [], "usage": usage})
            yield DONE

        return streamed(events())


SHARED = (
    *("n", "stop", "seed", "temperature", "top_p", "stream", "stream_options"),
    *("logit_bias", "presence_penalty", "frequency_penalty"),
)
"""What a request for a chat and one for a completion have in common."""


def direction_of(name: str, translating: Translating) -> Direction | None:
    """The direction that is called en-de."""
    return next((each for each in translating.models.directions if name == str(each)), None)


def messages_of(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who says what."""
    given = body.get("messages")
    if not isinstance(given, list) or not given or not all(isinstance(each, dict) for each in given):
        raise RefusedError(400, "messages: must be a list of objects")
    found = []
    for each in given:
        role, content = each.get("role"), each.get("content")
        if role not in ROLES:
            raise RefusedError(400, f"messages: a role is one of {', '.join(ROLES)}")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        known = [part for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        texts = [part["text"] for part in known if isinstance(part.get("text"), str)]
        if len(texts) < len(parts):
            raise RefusedError(400, "messages: the content of each must be a text")
        found.append((role, SURROGATE.sub("\N{REPLACEMENT CHARACTER}", "\n".join(texts))))
    return found


def conversation(messages: list[tuple[str, str]]) -> str:
    """The text that a model goes on with."""
    return "\n\n".join([*(ROLES[role] + text.strip() for role, text in messages), "Assistant:"])


async def trimmed(pieces: AsyncGenerator[Piece, None]) -> AsyncIterator[Piece]:
    """The same pieces without the white space before the first and after the last."""
    begun, held = False, ""
    async for found in pieces:
        text = held + found.text if begun else found.text.lstrip()
        begun = begun or bool(text)
        kept = text.rstrip()
        held = text[len(kept) :]
        yield found._replace(text=kept)


def said(index: int, text: str, reason: str, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def piece(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def likeliest(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Log-probabilities as a chat has them."""
    if found is None:
        return None
    tops = found["top_logprobs"] or [None] * len(found["tokens"])
    content = [
        {**token_of(token, value), "top_logprobs": [token_of(*other) for other in (top or {}).items()]}
        for token, value, top in zip(found["tokens"], found["token_logprobs"], tops, strict=True)
    ]
    return {"content": content, "refusal": None}


def token_of(token: str, value: float) -> dict[str, Any]:
    """A token; one of a single byte is spelled ⟨E2⟩, as everywhere here."""
    byte = re.fullmatch("⟨([0-9A-F]{2})⟩", token)
    return {"token": token, "logprob": value, "bytes": [int(byte[1], 16)] if byte else list(token.encode())}
