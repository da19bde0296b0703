"""uvicorn with an orderly shutdown, and without patience for clients that send nothing."""

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

HEADERS = 15.0
"""Seconds in which the head of a request has to arrive."""
HANDSHAKE = 5.0
"""Seconds for TLS, of a client that has come when the server is about to end."""
LONGEST_HEAD = 64_000
"""Bytes of it."""
UPGRADE = re.compile(rb"(?<=\n)Upgrade(?=:)", re.IGNORECASE)
ON_ITS_WAY = 0.5
"""Seconds that a request needs at most from a client's socket to here."""


class Server(uvicorn.Server):
    """A server that answers what it accepted before it stops; a second Ctrl+C stops it at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = self.config.app.state.ending = True  # type: ignore[union-attr]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends in good order; who has connected already, and only waits to be let in, is let in first."""
        waiting = [each.dup() for each in sockets or ()]
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        come: list[socket.socket] = []
        for each in waiting:
            with each, contextlib.suppress(BlockingIOError):
                each.setblocking(False)
                while True:  # without a pause, in which more would come
                    come.append(each.accept()[0])
        await asyncio.gather(*map(self.let_in, come))
        await super().shutdown([])

    async def let_in(self, connection: socket.socket) -> None:
        config = self.config

        def protocol() -> asyncio.Protocol:
            return Protocol(config, self.server_state, self.lifespan.state)

        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=config.ssl, **({"ssl_handshake_timeout": HANDSHAKE} if config.ssl else {})
            )


class Protocol(HttpToolsProtocol):
    """A connection that closes if no request arrives in time, or if the head of a request is too long."""

    hurry: asyncio.TimerHandle | None = None
    in_head, head = False, 0  # bytes of a head that is not whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        plain: socket.socket | None = transport.get_extra_info("socket")
        if plain is not None and plain.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves it out where sockets are made without naming TCP, and each answer takes 40 ms
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head, self.head = True, 0

    def on_headers_complete(self) -> None:
        self.in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self.in_head or self.answered:
            data = without_upgrade(data)
        super().data_received(data)
        self.head = self.head + len(data) if self.in_head else 0
        if self.head > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.rest()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Ends after the answer, or, if nothing is asked, in a moment: a request may be on its way."""
        if self.answered:
            self.loop.call_later(ON_ITS_WAY, self.end)
        else:
            self.cycle.keep_alive = False

    def end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    @property
    def answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def watch(self) -> None:
        """Counts the time while nothing is being answered, and so the head of a request is not whole."""
        if not self.answered:
            self.rest()
        elif self.hurry is None and not self.transport.is_closing():
            self.hurry = self.loop.call_later(HEADERS, self.transport.abort)

    def rest(self) -> None:
        if self.hurry is not None:
            self.hurry.cancel()
            self.hurry = None


def without_upgrade(data: bytes) -> bytes:
    """Removes the offer of Java's client to upgrade to HTTP/2, for which httptools would drop the body."""
    end = data.find(b"\r\n\r\n")
    return UPGRADE.sub(b"Ignored", data[:end]) + data[end:] if end >= 0 else UPGRADE.sub(b"Ignored", data)


def configure(app: Any, **options: Any) -> uvicorn.Config:
    """Returns the settings of a server for this application."""
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
