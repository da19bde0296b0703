"""The middleware for all requests, which checks host names, sizes and time limits, adds headers and writes the log."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.explorer.local_hosts import LOCAL, is_address
from regard.serving.client_limits import Deadlines, Places, ServingLimits, client_of
from regard.serving.refusals import LateError, RefusedError, error_response

LogRequest = Callable[[dict[str, Any]], None]
"""A function that is called with the log record of each finished request."""
WITHOUT_PLACE = ("/health", "/metrics")
"""Paths that are answered even if the limit of concurrent requests is reached."""
SEND_TIMEOUT = 60.0
"""Seconds within which a client must accept each part of an answer."""
PORT = re.compile(r":\d*$")
REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
CLIENT_CLOSED = 499
"""Status in the log for a request whose client has disconnected."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
CORS_HEADERS = {
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Expose-Headers": "Authorization",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Max-Age": "1728000",
}


class GuardMiddleware:
    """Checks host names and sizes, limits concurrency and time, and logs every request."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ServingLimits,
        *,
        hosts: Sequence[str] | None,
        origin: str | None,
        note: LogRequest,
        deadlines: Deadlines,
    ) -> None:
        """Accepts requests to IP addresses and to the names in `hosts`, or to any name if `hosts` is not set.

        Web pages of `origin` may send requests, of any origin if it is "*"; by default, only the server's own page.
        """
        self.app, self.limits, self.note, self.deadlines = app, limits, note, deadlines
        self.hosts = None if hosts is None else {host.lower() for host in (*LOCAL, *hosts)}
        self.origin, self.names = origin, {host.lower() for host in hosts or ()}
        headers = {**HEADERS, **({"Access-Control-Allow-Origin": origin, **CORS_HEADERS} if origin else {})}
        self.headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.places = Places(limits.concurrent, limits.concurrent_each)
        self.arriving = Places(limits.arriving, limits.arriving_each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self)
        try:
            self.check_host(exchange)
            self.check_origin(exchange)
            if scope["method"] == "OPTIONS":
                await Response(headers={"Allow": "GET, POST, OPTIONS"})(scope, exchange.receive, exchange.send)
            else:
                await exchange.run(self.app)
        except RefusedError as error:
            await error_response(error)(scope, exchange.receive, exchange.send)
        finally:
            self.note(exchange.record())

    def check_host(self, exchange: Exchange) -> None:
        if len(exchange.headers.getlist("host")) > 1:
            raise RefusedError(400, "Invalid request: more than one Host header")
        host = PORT.sub("", exchange.headers.get("host", "").lower())
        if self.hosts is not None and host not in self.hosts and not is_address(host):
            raise RefusedError(400, f"this server does not answer to the name {host[:100]!r}: see --hosts")

    def check_origin(self, exchange: Exchange) -> None:
        """Rejects requests from pages of other origins, even if a browser would not let them read the answer."""
        origin = exchange.headers.get("origin", "").lower()
        if self.origin is not None or not origin:
            return
        place = origin.partition("://")[2]
        if place != exchange.headers.get("host", "").lower() and PORT.sub("", place) not in self.names:
            raise RefusedError(403, f"pages of {origin[:100]} may not use this server: see --cors")


class Exchange:
    """One request and its answer.

    Until a request with a body is complete, it holds one of the places for arriving requests; then it holds a place for
    requests being answered. Requests for the health and metrics of the server need no place.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, guard: GuardMiddleware) -> None:
        self.scope, self._receive, self._send, self.guard = scope, receive, send, guard
        self.limits, self.headers = guard.limits, Headers(scope=scope)
        request_id = self.headers.get("x-request-id", "")
        self.request_id = request_id if REQUEST_ID.fullmatch(request_id) else uuid.uuid4().hex
        self.client = client_of((scope.get("client") or ("unknown", 0))[0])
        self.started, self.status, self.size = time.monotonic(), 0, 0
        self.most = self.limits.upload + 100_000 if scope["path"].endswith("/translate_file") else self.limits.bytes
        self.complete = False  # whether the whole request has arrived
        self.client_left = False
        self.places = ExitStack()
        self.answering: asyncio.Task[Any] | None = None
        self.watching: asyncio.Task[None] | None = None
        self.details: dict[str, Any] = {}  # details for the log, never texts or keys
        scope.setdefault("state", {}).update(client=self.client, details=self.details)

    async def run(self, app: ASGIApp) -> None:
        """Runs the application until it has answered or the client disconnects."""
        self.answering = asyncio.current_task()
        try:
            with self.places:
                if self.headers.get("content-length", "") in ("", "0") and not self.headers.get(
                    "transfer-encoding", ""
                ):
                    self.take_place()
                await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self.client_left:
                raise
            self.status = CLIENT_CLOSED
        finally:
            if self.watching is not None:
                self.watching.cancel()

    def take_place(self) -> None:
        """Exchanges the place of an arriving request for the place of a complete one."""
        self.places.close()
        if self.scope["path"] not in WITHOUT_PLACE:
            self.places.enter_context(self.guard.places.take(self.client))

    async def watch(self) -> None:
        """Cancels the answer when the client disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.answering is not None:
            self.client_left = True
            self.answering.cancel()

    async def receive(self) -> Message:
        """Returns the next part of the request; raises RefusedError if it is too long or too slow."""
        if self.complete:
            await asyncio.Event().wait()  # no more parts arrive, and `watch` notices a disconnect
        declared = self.headers.get("content-length", "")
        self.check_size(int(declared) if declared.isdecimal() else 0, f"{declared} bytes")
        if not self.size:
            self.places.close()
            self.places.enter_context(self.guard.arriving.take(self.client))
        try:
            async with self.guard.deadlines.until(self.started + self.limits.reading):
                message = await self._receive()
        except LateError:
            raise RefusedError(408, "Invalid request: it took too long to arrive") from None
        self.size += len(message.get("body", b""))
        self.check_size(self.size, f"{self.size} bytes or more")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.complete = True
            self.watching = asyncio.create_task(self.watch())
            self.take_place()
        return message

    def check_size(self, size: int, text: str) -> None:
        if size > self.most:
            raise RefusedError(413, f"Invalid request: request ({text}) exceeds limit ({self.most})")

    async def send(self, message: Message) -> None:
        """Sends a part of the answer with common headers; raises TimeoutError if the client does not read it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = dict([*self.guard.headers, *message.get("headers", ())])
            headers[b"x-request-id"] = self.request_id.encode()
            unread = not self.complete and self.status >= 400  # the rest of the request is not read
            if unread or getattr(self.scope["app"].state, "ending", False):
                headers[b"connection"] = b"close"
            message = {**message, "headers": list(headers.items())}
        async with asyncio.timeout(SEND_TIMEOUT):
            await self._send(message)
        if self.watching is not None and message["type"] == "http.response.body" and not message.get("more_body"):
            self.watching.cancel()

    def record(self) -> dict[str, Any]:
        """Returns the log record, without texts, keys and the query string, which may contain both."""
        return {
            "request": self.request_id,
            "client": self.scope["state"]["client"],
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": self.status,
            "seconds": round(time.monotonic() - self.started, 4),
            "bytes": self.size,
            **self.details,
        }
