"""Serves the explorer over HTTP: JSON and safetensors about one model, and the page that draws them.

    uvicorn.run(create_app(Explorer.open("runs/en-de")))      # or serve(explorer, "127.0.0.1", 8000)

Only pages of this origin can use it. Requests of other origins are refused by their Sec-Fetch-Site header, and
requests to another host name, as in DNS rebinding, by their Host header.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError, RegardError
from regard.explorer import embedding_space as space, export, parameters as weights
from regard.explorer.ablation import GoneError, ablate
from regard.explorer.allowed_hosts import LOCAL, is_address
from regard.explorer.request_checks import LIMITS, MissingError, TooBigError, whole_number
from regard.explorer.trace import Explorer, Run

PAGE = Path(__file__).parent / "page"
MOST_BODY = 1_000_000
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


def create_app(explorer: Explorer, page: Path | None = None, hosts: Sequence[str] = ()) -> Starlette:
    """Returns the explorer of one model as a web application; it answers to localhost and the names in `hosts`."""
    guard = Middleware(Guard, hosts=(*LOCAL, *hosts), page=page or PAGE)
    handlers: dict[Any, Any] = {RegardError: answer_error, HTTPException: answer_http_error}
    return Starlette(routes=routes(explorer, page), middleware=[guard], exception_handlers=handlers)


def routes(explorer: Explorer, page: Path | None = None) -> list[BaseRoute]:
    """Returns the explorer's routes, for use in another application: all addresses in the page are relative."""
    web = ExplorerEndpoints(explorer, page or PAGE)
    return [
        Route("/", web.index),
        Route("/static/{path:path}", web.static),
        Route("/api/health", web.health),
        Route("/api/model", web.model),
        Route("/api/run", web.run, methods=["POST"]),
        Route("/api/run/{name}", web.again),
        Route("/api/run/{name}/tensors", web.tensors),
        Route("/api/ablate", web.ablate, methods=["POST"]),
        Route("/api/weights", web.weights),
        Route("/api/weights/summary", web.summary),
        Route("/api/embeddings/near", web.near),
        Route("/api/embeddings/map", web.map),
        Route("/api/positions", web.positions),
        Route("/api/positions/tensor", web.position_tensor),
        Route("/api/source", web.source),
        Route("/api/export/{file}", web.export),
    ]


class ExplorerEndpoints:
    """The endpoints; work on the model runs outside the event loop, one request at a time."""

    def __init__(self, explorer: Explorer, page: Path) -> None:
        self.explorer, self.page = explorer, page
        self.lock = threading.Lock()

    async def work(self, job: Callable[[], Any]) -> Any:
        """Runs a job that has the model to itself, and returns its result."""

        def alone() -> Any:
            with self.lock:
                return job()

        return await run_in_threadpool(alone)

    async def index(self, _request: Request) -> Response:
        return await run_in_threadpool(self.file, "index.html")

    async def static(self, request: Request) -> Response:
        return await run_in_threadpool(self.file, request.path_params["path"])

    def file(self, name: str) -> Response:
        """Returns a file of the page; refuses any path outside of it."""
        root = self.page.resolve()
        try:
            path = (root / name).resolve()
            if not path.is_relative_to(root) or not path.is_file() or path.suffix not in TYPES:
                raise MissingError(f"{name[:100]}: the page has no such file")
            content = path.read_bytes()
        except (OSError, ValueError):
            raise MissingError(f"{name[:100]}: the page has no such file") from None
        return Response(content, media_type=TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def model(self, _request: Request) -> Response:
        return JSONResponse(await self.work(self.explorer.describe))

    async def run(self, request: Request) -> Response:
        body = await read_json(request)
        return JSONResponse(await self.work(lambda: self.explorer.run(body).answer))

    async def again(self, request: Request) -> Response:
        return JSONResponse(await self.work(lambda: self.explorer.find(request.path_params["name"]).answer))

    async def tensors(self, request: Request) -> Response:
        names = [name for name in required(request, "names").split(",") if name]
        kind = request.query_params.get("dtype", "f32")
        if kind not in ("f16", "f32"):
            raise InputError(f"dtype: must be f16 or f32, not {kind[:40]!r}")
        name = request.path_params["name"]
        return binary(await self.work(lambda: export.pack(self.explorer.find(name), names, half=kind == "f16")))

    async def ablate(self, request: Request) -> Response:
        body = await read_json(request)
        what, op, targets = body.get("what", "heads"), body.get("op", "zero"), body.get("targets")

        gone = threading.Event()
        watching = asyncio.create_task(notice_leaving(request, gone))

        def job() -> Any:
            return find_effects(self.explorer.find(str(body.get("run"))), what, op, targets, gone.is_set)

        try:
            return JSONResponse(await self.work(job))
        except GoneError:
            return Response(status_code=499)  # the client has left
        finally:
            watching.cancel()

    async def weights(self, request: Request) -> Response:
        name, query = required(request, "name"), request.query_params
        anatomy = self.explorer.anatomy

        def job() -> bytes:
            tensor = weights.weight_slice(anatomy, name, query.get("rows"), query.get("columns"))
            return export.safetensors_bytes({name: tensor}, {})

        return binary(await self.work(job))

    async def summary(self, request: Request) -> Response:
        name = required(request, "name")
        return JSONResponse(await self.work(lambda: weights.summarize(self.explorer.anatomy, name)))

    async def near(self, request: Request) -> Response:
        side, token = required(request, "side"), whole_number(required(request, "id"), "id")
        count = whole_number(request.query_params.get("k", "12"), "k", 1, LIMITS.top)
        return JSONResponse(await self.work(lambda: self.explorer.near(side, token, count)))

    async def map(self, request: Request) -> Response:
        side, count = required(request, "side"), whole_number(request.query_params.get("n", "400"), "n", 0, 5000)
        ids = [whole_number(each, "ids") for each in request.query_params.get("ids", "").split(",") if each]
        return JSONResponse(await self.work(lambda: self.explorer.map(side, count, ids)))

    async def positions(self, request: Request) -> Response:
        about, _ = await self._positions(request)
        return JSONResponse(about)

    async def position_tensor(self, request: Request) -> Response:
        about, rows = await self._positions(request)
        if rows is None:
            raise MissingError(f"positions: this model has no table of positions ({about['kind']})")
        return binary(export.safetensors_bytes({"positions": rows}, {"positions": ("position", "width")}))

    async def _positions(self, request: Request) -> Any:
        side, count = required(request, "side"), whole_number(request.query_params.get("n", "64"), "n", 1, 1024)
        return await self.work(lambda: space.positions(self.explorer.anatomy, side, count))

    async def source(self, request: Request) -> Response:
        name = required(request, "name")
        return JSONResponse(await self.work(lambda: self.explorer.source_links.find(name)))

    async def export(self, request: Request) -> Response:
        name, _, suffix = request.path_params["file"].rpartition(".")
        writers: dict[str, Callable[[Run], str | bytes]] = {
            "html": lambda run: export.page_html(run, page=self.page),
            "json": export.run_json,
            "safetensors": export.run_safetensors,
        }
        if suffix not in writers:
            raise MissingError("export: unknown format; use .html, .json or .safetensors")
        content = await self.work(lambda: writers[suffix](self.explorer.find(name)))
        kind = TYPES.get(f".{suffix}", "application/octet-stream")
        kept = {"Content-Disposition": f'attachment; filename="{name}.{suffix}"'}
        return Response(content, media_type=kind, headers=kept)


async def notice_leaving(request: Request, gone: threading.Event) -> None:
    """Sets `gone` when the client has left."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)
    gone.set()


def find_effects(run: Run, what: str, op: str, targets: Any, gone: Callable[[], bool]) -> dict[str, Any]:
    """Returns the effects of an ablation, which are computed once for each run."""
    key = json.dumps(["ablate", what, op, targets])
    if key not in run.ablations:
        run.ablations[key] = ablate(run.passed, what, op, targets, gone)
    found: dict[str, Any] = run.ablations[key]
    return found


def binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def required(request: Request, name: str) -> str:
    """Returns a query parameter; raises InputError if it is missing."""
    value = request.query_params.get(name)
    if not value:
        raise InputError(f"{name}: is missing")
    return value


async def read_json(request: Request) -> dict[str, Any]:
    """Reads a JSON object of limited length from the body of a request."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY:
            raise TooBigError(f"the request is longer than {MOST_BODY:,} bytes: shorten it")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise InputError("the request must be a JSON object")
    return body


async def answer_error(_request: Request, error: Exception) -> Response:
    """Returns the error of a faulty request in one line."""
    status = 404 if isinstance(error, MissingError) else 413 if isinstance(error, TooBigError) else 400
    return JSONResponse({"error": " ".join(str(error).split())}, status)


async def answer_http_error(_request: Request, error: HTTPException) -> Response:
    """Returns the error of a request without a route."""
    return JSONResponse({"error": error.detail}, error.status_code)


class Guard:
    """Admits only pages of this origin, and forbids the browser to load anything from elsewhere."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], page: Path) -> None:
        self.app, self.page = app, page
        self.hosts = {host.lower() for host in hosts}
        self.hosts |= {f"[{host}]" for host in self.hosts if ":" in host and not host.startswith("[")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = re.sub(r":\d*$", "", headers.get(b"host", b"").decode("latin-1").lower())
        policy = content_policy(self.page)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *security_headers(policy)]
            await send(message)

        app: Callable[[Scope, Receive, Send], Awaitable[None]] = self.app
        if host not in self.hosts and not is_address(host):
            app = JSONResponse({"error": f"this server does not answer to the name {host[:100]!r}"}, 400)
        elif headers.get(b"sec-fetch-site", b"none") == b"cross-site" and scope["path"] != "/":
            app = JSONResponse({"error": "this server answers its own page only"}, 403)
        await app(scope, receive, answer)


def security_headers(policy: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]


def content_policy(page: Path) -> str:
    """Returns the Content-Security-Policy: the page may load its own files and run the inline scripts of index.html."""
    try:
        index = (page / "index.html").read_bytes()
    except OSError:
        index = b""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in INLINE.findall(index)]
    scripts = " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
