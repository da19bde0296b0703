"""uvicorn as it is used here: it ends in good order, and does not wait for clients that say nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 15.0
"""Seconds in which the head of a request has to arrive."""


ON_ITS_WAY = 0.5
"""Seconds that a request needs at most from a client's socket to here."""


class Server(uvicorn.Server):
    """Finishes what it accepted when it is told to end, and then returns; a second Ctrl+C ends it at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = self.config.app.state.ending = True  # type: ignore[union-attr]


class Protocol(H11Protocol):
    """Closes a connection on which no request arrives in time."""

    hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        plain: socket.socket | None = transport.get_extra_info("socket")
        if plain is not None and plain.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves it out where sockets are made without naming TCP, and each answer takes 40 ms
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.rest()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Ends after the answer, or, if nothing is asked, in a moment: a request may be on its way."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(ON_ITS_WAY, self.end)
        else:
            self.cycle.keep_alive = False

    def end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def watch(self) -> None:
        """Counts the time while the head of a request is not whole."""
        if self.conn.their_state is not h11.IDLE:
            self.rest()
        elif self.hurry is None:
            self.hurry = self.loop.call_later(HEADERS, self.transport.abort)

    def rest(self) -> None:
        if self.hurry is not None:
            self.hurry.cancel()
            self.hurry = None


def configure(app: Any, **options: Any) -> uvicorn.Config:
    """The settings of a server for this application."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        h11_max_incomplete_event_size=64_000,
        timeout_keep_alive=30,
        **options,
    )
