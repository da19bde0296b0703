"""A uvicorn server with a graceful shutdown, and limits for clients that send too slowly or too much."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT = 15.0
"""Seconds within which the head of a request must arrive."""
TLS_TIMEOUT = 5.0
"""Seconds for the TLS handshake of a connection that is accepted while the server is stopping."""
MAX_HEAD = 64_000
"""Maximum size of a request head in bytes; also of the framing of its body, such as chunk extensions."""
FRAMING_PER_BYTE = 8
"""Additional framing bytes that are allowed per byte of a body; chunks of one byte need five."""
STOP_GRACE = 3.0
"""Seconds after which a stopping server cancels documents, and requests that have not fully arrived."""
UPGRADE = re.compile(rb"(?<=\n)Upgrade(?=:)", re.IGNORECASE)
LINGER = 0.5
"""Seconds during which a request may still arrive on an idle connection while the server is stopping."""


class Server(uvicorn.Server):
    """A server that answers all accepted requests before it stops; a second Ctrl+C stops it immediately."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = self.config.app.state.ending = True  # type: ignore[union-attr]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts the connections that are already waiting in the backlog, and then shuts down."""
        listening = [each.dup() for each in sockets or ()]
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        connections: list[socket.socket] = []
        for each in listening:
            with each, contextlib.suppress(BlockingIOError):
                each.setblocking(False)
                while True:  # without await, so that no new connections arrive meanwhile
                    connections.append(each.accept()[0])
        await asyncio.gather(*map(self._serve_connection, connections))
        deadlines = getattr(self.config.app.state, "deadlines", None)  # type: ignore[union-attr]
        if deadlines is not None:
            asyncio.get_running_loop().call_later(STOP_GRACE, deadlines.end)
        await super().shutdown([])

    async def _serve_connection(self, connection: socket.socket) -> None:
        tls: dict[str, Any] = {"ssl": self.config.ssl, "ssl_handshake_timeout": TLS_TIMEOUT} if self.config.ssl else {}
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Protocol(self.config, self.server_state, self.lifespan.state), connection, **tls
            )


class Protocol(HttpToolsProtocol):
    """A connection that closes if no request arrives in time, or if the head or framing of a request is too long."""

    timer: asyncio.TimerHandle | None = None
    in_head, head_size, framing_left = False, 0, MAX_HEAD

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio sets this option only if the protocol is given as TCP; without it, each answer takes 40 ms longer
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watch_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head, self.head_size = True, 0

    def on_headers_complete(self) -> None:
        self.in_head, self.framing_left = False, MAX_HEAD
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.framing_left += (1 + FRAMING_PER_BYTE) * len(body)
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        if self.in_head or self.is_idle:
            data = without_upgrade(data)
        self.framing_left -= len(data)
        super().data_received(data)
        self.head_size = self.head_size + len(data) if self.in_head else 0
        if self.head_size > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        elif self.framing_left < 0 and not self.is_idle and self.cycle.more_body and not self.transport.is_closing():
            if not self.cycle.response_started:
                self.send_400_response("The chunk extensions in the body of the request are too long.")
            self.transport.close()
        self.watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Closes after the current answer, or after `LINGER` seconds if idle, since a request may be on its way."""
        if self.is_idle:
            self.loop.call_later(LINGER, self._close_if_open)
        else:
            self.cycle.keep_alive = False

    def _close_if_open(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    @property
    def is_idle(self) -> bool:
        """True if no request is being received or answered; an incomplete head does not count."""
        return self.cycle is None or self.cycle.response_complete

    def watch_head(self) -> None:
        """Starts the timer for the next head, or stops it when the head is complete."""
        if not self.is_idle:
            self.stop_timer()
        elif self.timer is None and not self.transport.is_closing():
            self.timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def without_upgrade(data: bytes) -> bytes:
    """Removes the Upgrade header that Java's HTTP client sends for HTTP/2, because httptools would drop the body."""
    end = data.find(b"\r\n\r\n")
    return UPGRADE.sub(b"Ignored", data[:end]) + data[end:] if end >= 0 else UPGRADE.sub(b"Ignored", data)


def configure(app: Any, **options: Any) -> uvicorn.Config:
    """Returns the uvicorn settings for an application."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=30,
        **options,
    )
