"""The server as an ASGI application: its routes, middleware and error handlers.

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
from regard.serving import openapi, translation_page
from regard.serving.chat import Chat
from regard.serving.client_limits import Admission, Deadlines, KeyFile, ServingLimits, bearer
from regard.serving.encoder_endpoints import Encoders
from regard.serving.explorer_pages import ExplorerPages
from regard.serving.libretranslate import LibreTranslate
from regard.serving.metrics import Metrics
from regard.serving.middleware import CLIENT_CLOSED, GuardMiddleware, LogRequest
from regard.serving.openai import OpenAI
from regard.serving.refusals import RefusedError, error_response, refusal_for
from regard.serving.served_models import Models
from regard.serving.translated_files import FileStore
from regard.serving.translation_service import TranslationService

SWEEP_SECONDS = 30.0
"""Seconds between two deletions of expired files."""


def create_app(
    models: Models,
    limits: ServingLimits | None = None,
    keys: KeyFile | None = None,
    *,
    pivot: str | None = None,
    hosts: Sequence[str] | None = None,
    origin: str | None = None,
    weblate_probe: bool = False,
    files: Path | None = None,
    metrics: bool = False,
    look: bool = False,
    note: LogRequest | None = None,
) -> Starlette:
    """Returns the server as an ASGI application.

    It accepts requests to the host names in `hosts`, by default to any name, and calls `note` with the log record of
    each request. Web pages of `origin` may call it, of any origin if `origin` is "*". Translated files are stored in
    the folder `files`, which several servers may share. With `look`, the translation page shows what the model computed
    for a translation.
    """
    limits = limits or ServingLimits()
    deadlines, admission = Deadlines(), Admission(limits, keys)
    translating = TranslationService(models, pivot, deadlines)
    pages = ExplorerPages(models, admission, deadlines) if look else None
    libre = LibreTranslate(translating, limits, admission, weblate_probe=weblate_probe, files=files, pages=pages)
    openai = OpenAI(models, limits, admission)
    interfaces = (libre, openai, Chat(openai, translating, limits), Encoders(models, limits, admission))
    routes: list[BaseRoute] = [route for each in interfaces for route in each.routes()]
    routes += pages.routes() if pages else []
    counted = Metrics(route.path for route in routes if isinstance(route, Route))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(sweep(libre.shelf)), asyncio.create_task(models.watch())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await models.close()
        translating.close()
        libre.shelf.close()

    async def show_metrics(request: Request) -> Response:
        admission.admit(request.state.client, bearer(request))
        return Response(counted.text(models.queues), media_type="text/plain; version=0.0.4; charset=utf-8")

    def count_and_note(record: dict[str, Any]) -> None:
        counted.note(record)
        if note is not None:
            note(record)

    routes += [*translation_page.routes(), *openapi.routes(), *([Route("/metrics", show_metrics)] if metrics else [])]
    guard = Middleware(
        GuardMiddleware, limits=limits, hosts=hosts, origin=origin, note=count_and_note, deadlines=deadlines
    )
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=dict(HANDLERS), lifespan=lifespan)
    app.state.deadlines = deadlines
    return app


async def sweep(shelf: FileStore) -> None:
    """Deletes translated files that have been kept long enough, until it is cancelled."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        shelf.sweep()


async def answer_refusal(request: Request, error: Exception) -> Response:
    """Returns an error for a rejected request in the format of the API that was called."""
    assert isinstance(error, RefusedError | RegardError)
    return error_response(refusal_for(error), request.url.path)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Returns an HTTP error, such as for an unknown path, in the format of OpenAI or, like LibreTranslate, as HTML."""
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/v1/"):
        refusal = RefusedError(error.status_code, f"{request.url.path[:100]} {error.detail}")
        return error_response(refusal, request.url.path)
    title = f"{error.status_code} {escape(str(error.detail))}"
    page = f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1>"
    return HTMLResponse(page, error.status_code, dict(error.headers or {}))


async def answer_disconnect(_request: Request, _error: Exception) -> Response:
    """Ends a request whose client has disconnected."""
    return Response(status_code=CLIENT_CLOSED)


async def answer_server_error(request: Request, _error: Exception) -> Response:
    """Returns an error for a request that failed because of a bug in the server; the traceback is in the log."""
    return error_response(RefusedError(500, "Internal server error"), request.url.path)


HANDLERS: dict[Any, Any] = {
    RefusedError: answer_refusal,
    RegardError: answer_refusal,
    HTTPException: answer_http_error,
    ClientDisconnect: answer_disconnect,
    Exception: answer_server_error,
}
