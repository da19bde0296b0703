"""The middleware around every request: host names, sizes, time limits, headers, and the log."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.explorer.allowed_hosts import LOCAL, is_address
from regard.serving.client_limits import Places, ServingLimits, client_of
from regard.serving.refusals import RefusedError, response_of

LogRequest = Callable[[dict[str, Any]], None]
"""A function that gets the record of each finished request."""
Headers = list[tuple[bytes, bytes]]

SENDING = 60.0
"""Seconds in which a client has to take a part of its answer."""
NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
CLOSED = 499  # the client has left; nobody reads it, it is for the log
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class GuardMiddleware:
    """Checks names and sizes, limits concurrency and time, and logs every request."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ServingLimits,
        *,
        hosts: Sequence[str] | None = None,
        origin: str = "*",
        note: LogRequest | None = None,
    ) -> None:
        """Accepts requests to IP addresses and to the names in `hosts`; without `hosts`, to any name."""
        self.app, self.limits, self.note = app, limits, note or (lambda _record: None)
        self.hosts = None if hosts is None else {host.lower() for host in (*LOCAL, *hosts)}
        self.headers = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in {**SECURITY, **cors(origin)}.items()
        ]
        self.places = Places(limits.concurrent, limits.concurrent_each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self.limits, self.headers)
        try:
            await self.answer(exchange, scope)
        finally:
            self.note(exchange.record())

    async def answer(self, exchange: Exchange, scope: Scope) -> None:
        host = re.sub(r":\d*$", "", exchange.asked(b"host").lower())
        if self.hosts is not None and host not in self.hosts and not is_address(host):
            refusal = RefusedError(400, f"this server does not answer to the name {host[:100]!r}: see --hosts")
            await response_of(refusal)(scope, exchange.receive, exchange.send)
        elif scope["method"] == "OPTIONS":
            await Response(headers={"Allow": "GET, POST, OPTIONS"})(scope, exchange.receive, exchange.send)
        else:
            try:
                with self.places.take(exchange.client):
                    await exchange.run(self.app)
            except RefusedError as error:
                await response_of(error)(scope, exchange.receive, exchange.send)


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: ServingLimits, headers: Headers) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.limits, self.headers = limits, headers
        name = self.asked(b"x-request-id")
        self.name = name if NAME.fullmatch(name) else uuid.uuid4().hex
        self.client = client_of((scope.get("client") or ("unknown", 0))[0])
        self.started, self.status, self.size = time.monotonic(), 0, 0
        self.most = limits.upload + 100_000 if scope["path"].endswith("/translate_file") else limits.bytes
        self.arrived = self.left = False  # all of the request; the client
        self.answering: asyncio.Task[Any] | None = None
        self.leaving: asyncio.Task[None] | None = None
        self.details: dict[str, Any] = {}  # what the answers add to the log: never a text, never a key
        scope.setdefault("state", {})
        scope["state"].update(request=self.name, client=self.client, details=self.details)

    def asked(self, name: bytes) -> str:
        """Returns a header of the request, or an empty text."""
        return next((value.decode("latin-1") for each, value in self.scope["headers"] if each == name), "")

    async def run(self, app: ASGIApp) -> None:
        """Runs the application, unless the client leaves first."""
        self.answering = asyncio.current_task()
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self.left:
                raise
            self.status = CLOSED
        finally:
            if self.leaving is not None:
                self.leaving.cancel()

    async def watch(self) -> None:
        """Ends the answer when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.answering is not None:
            self.left = True
            self.answering.cancel()

    async def receive(self) -> Message:
        """Returns the next part of the request; refuses one that is too long or too slow."""
        if self.arrived:
            await asyncio.Event().wait()  # nothing more comes, and `watch` notices when the client leaves
        declared = self.asked(b"content-length")
        if declared.isdecimal() and int(declared) > self.most:
            raise RefusedError(413, f"Invalid request: request ({declared} bytes) exceeds limit ({self.most})")
        try:
            async with asyncio.timeout(self.started + self.limits.reading - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise RefusedError(408, "Invalid request: it took too long to arrive") from None
        self.size += len(message.get("body", b""))
        if self.size > self.most:
            raise RefusedError(413, f"Invalid request: request ({self.size} bytes or more) exceeds limit ({self.most})")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.arrived = True
            self.leaving = asyncio.create_task(self.watch())
        return message

    async def send(self, message: Message) -> None:
        """Sends a part of the answer, with common headers; gives up on a client that does not read it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = dict([*self.headers, *message.get("headers", ())])
            given[b"x-request-id"] = self.name.encode()
            unread = not self.arrived and self.status >= 400  # the rest of the request is not waited for
            if unread or getattr(self.scope["app"].state, "ending", False):
                given[b"connection"] = b"close"
            message = {**message, "headers": list(given.items())}
        async with asyncio.timeout(SENDING):
            await self._send(message)
        if self.leaving is not None and message["type"] == "http.response.body" and not message.get("more_body"):
            self.leaving.cancel()

    def record(self) -> dict[str, Any]:
        """Returns the record for the log: no text, no key, and no query, which may contain both."""
        return {
            "request": self.name,
            "client": self.scope["state"]["client"],
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": self.status,
            "seconds": round(time.monotonic() - self.started, 4),
            "bytes": self.size,
            **self.details,
        }


def cors(origin: str) -> dict[str, str]:
    """Returns the headers that allow pages of other origins to ask."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Expose-Headers": "Authorization",
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Max-Age": "1728000",
    }
