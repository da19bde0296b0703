"""The server: its routes, middleware and error handlers.

create_app(models)      # an ASGI application, for uvicorn or another server
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import RegardError
from regard.serving import translation_page as page
from regard.serving.chat import Chat
from regard.serving.client_limits import Admission, KeyFile, ServingLimits
from regard.serving.libretranslate import LibreTranslate
from regard.serving.metrics import Metrics
from regard.serving.middleware import CLOSED, GuardMiddleware, LogRequest
from regard.serving.openai import OpenAI
from regard.serving.refusals import RefusedError, refusal_of, response_of
from regard.serving.request_bodies import bearer
from regard.serving.served_models import Models
from regard.serving.translation_service import TranslationService

SWEEP = 30.0
"""Seconds between two looks at the files that are to be deleted."""


def create_app(
    models: Models,
    limits: ServingLimits | None = None,
    keys: KeyFile | None = None,
    *,
    pivot: str | None = None,
    hosts: Sequence[str] | None = None,
    origin: str = "*",
    weblate_probe: bool = False,
    files: Path | None = None,
    metrics: bool = False,
    note: LogRequest | None = None,
) -> Starlette:
    """Returns the server as an ASGI application.

    It answers to the names in `hosts`, or to any, and calls `note` with the record of each request.
    Servers that share a folder for `files` serve each other's translated files.
    """
    limits = limits or ServingLimits()
    translating = TranslationService(models, pivot)
    admission = Admission(limits, keys)
    libre = LibreTranslate(translating, limits, admission, weblate_probe=weblate_probe, files=files)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(sweep(libre)), asyncio.create_task(models.watch())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await models.close()
        translating.close()
        libre.shelf.close()

    openai = OpenAI(models, limits, admission)
    chat = Chat(openai, translating, limits)
    routes: list[BaseRoute] = [*libre.routes(), *openai.routes(), *chat.routes()]
    handlers: dict[Any, Any] = {
        RefusedError: on_refusal,
        RegardError: on_refusal,
        HTTPException: on_nothing,
        ClientDisconnect: on_leaving,
        Exception: on_fault,
    }
    counted = Metrics(route.path for route in routes if isinstance(route, Route))

    async def show_metrics(request: Request) -> Response:
        admission.admit(request.state.client, bearer(request))
        return Response(counted.text(models.queues), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes += [*page.routes(), *([Route("/metrics", show_metrics)] if metrics else [])]

    def noted(record: dict[str, Any]) -> None:
        counted.note(record)
        if note is not None:
            note(record)

    guard = Middleware(GuardMiddleware, limits=limits, hosts=hosts, origin=origin, note=noted)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)


async def sweep(libre: LibreTranslate) -> None:
    """Deletes files that were not fetched in time, until it is cancelled."""
    while True:
        await asyncio.sleep(SWEEP)
        libre.shelf.sweep()


async def on_refusal(request: Request, error: Exception) -> Response:
    """Returns an error in the form of the interface that was used."""
    assert isinstance(error, RefusedError | RegardError)
    return response_of(refusal_of(error), request.url.path)


async def on_nothing(request: Request, error: HTTPException) -> Response:
    """Returns an error for an unknown address, as LibreTranslate does."""
    if request.url.path.startswith("/v1/"):
        return await on_refusal(request, RefusedError(error.status_code, f"{request.url.path[:100]} {error.detail}"))
    title = f"{error.status_code} {escape(str(error.detail))}"
    page = f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1>"
    return HTMLResponse(page, error.status_code, dict(error.headers or {}))


async def on_leaving(_request: Request, _error: ClientDisconnect) -> Response:
    """Ends a request whose client has left; nobody reads the answer."""
    return Response(status_code=CLOSED)


async def on_fault(request: Request, _error: Exception) -> Response:
    """Returns the answer to a request that met a bug in the server; the log has the traceback."""
    return await on_refusal(request, RefusedError(500, "The server made a mistake"))
