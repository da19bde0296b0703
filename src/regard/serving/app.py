"""The server: what is answered at which address, and what stands before it.

create_app(models)      # an ASGI application, for uvicorn or another server
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from html import escape
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import RegardError
from regard.serving import languages
from regard.serving.guard import CLOSED, Guard, Note, refused, told
from regard.serving.libretranslate import LibreTranslate
from regard.serving.limits import Admission, Keys, Limits, RefusedError
from regard.serving.translation import Models, Translating

SWEEP = 30.0
"""Seconds between two looks at the files that are to be deleted."""


def create_app(
    models: Models,
    limits: Limits | None = None,
    keys: Keys | None = None,
    *,
    pivot: str | None = None,
    hosts: Sequence[str] | None = None,
    origin: str = "*",
    weblate_probe: bool = False,
    note: Note | None = None,
) -> Starlette:
    """All that is served; `hosts` are the names to answer to (none: any), `note` is told of each request."""
    limits = limits or Limits()
    translating = Translating(models, pivot)
    libre = LibreTranslate(translating, limits, Admission(limits, keys), weblate_probe=weblate_probe)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(sweep(libre))
        yield
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        await models.close()
        translating.close()
        libre.shelf.close()

    routes: list[BaseRoute] = [Route("/", Front(translating).index), *libre.routes()]
    handlers: dict[Any, Any] = {
        RefusedError: on_refusal,
        RegardError: on_mistake,
        HTTPException: on_nothing,
        ClientDisconnect: on_leaving,
        Exception: on_fault,
    }
    guard = Middleware(Guard, limits=limits, hosts=hosts, origin=origin, note=note)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)


async def sweep(libre: LibreTranslate) -> None:
    """Deletes files that were not fetched in time."""
    while True:
        await asyncio.sleep(SWEEP)
        libre.shelf.sweep()


class Front:
    """The page at the top: what is served."""

    def __init__(self, translating: Translating) -> None:
        self.translating = translating

    async def index(self, _request: Request) -> Response:
        ways = [
            f"<li>{escape(languages.name(each.source))} → {escape(languages.name(each.target))}</li>"
            for each in self.translating.models.directions
        ]
        return HTMLResponse(
            "<!doctype html><html lang=en><meta charset=utf-8><title>Regard</title><h1>Regard</h1>"
            f"<p>This server translates:</p><ul>{''.join(ways)}</ul>"
            '<p>It speaks LibreTranslate\'s interface: <a href="spec">spec</a>, <a href="languages">languages</a>.</p>'
        )


async def on_refusal(_request: Request, error: RefusedError) -> Response:
    return refused(error)


async def on_mistake(_request: Request, error: Exception) -> Response:
    """A mistake of the one who asks, in one line; where there is too much to do, when to come again."""
    from regard.serving.scheduler import BusyError, LateError

    if isinstance(error, BusyError):
        return refused(RefusedError(429, "Slowdown: too many texts are waiting", error.retry_after))
    if isinstance(error, LateError):
        return told(504, "No translation was found in time: send less at once")
    return told(400, f"Invalid request: {error}")


async def on_nothing(_request: Request, error: HTTPException) -> Response:
    """What is not there, as LibreTranslate says it."""
    title = f"{error.status_code} {escape(str(error.detail))}"
    page = f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1>"
    return HTMLResponse(page, error.status_code, dict(error.headers or {}))


async def on_leaving(_request: Request, _error: ClientDisconnect) -> Response:
    """Nobody reads it."""
    return Response(status_code=CLOSED)


async def on_fault(_request: Request, _error: Exception) -> Response:
    """A bug of ours; the log has the rest."""
    return told(500, "The server made a mistake")
