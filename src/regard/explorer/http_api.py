"""The HTTP API of the explorer, which returns JSON and safetensors for one model, and the routes of its page.

    uvicorn.run(create_app(Explorer.open("runs/en-de")))

Several models can be served, each under its own path, and every page links to all of them.

Only its own page can use it. Requests from other origins are rejected by their Origin and Sec-Fetch-Site headers, and
requests to another host name, as in DNS rebinding, by their Host header. Bodies must be JSON and arrive within a time
limit.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from msgspec import NODEFAULT, Meta, defstruct, structs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError, RegardError
from regard.explorer import embedding_space as space, export, weight_matrices as weights
from regard.explorer.ablation import ClientGoneError, ablate
from regard.explorer.lessons import find_lesson
from regard.explorer.local_hosts import LOCAL, is_address
from regard.explorer.model_explorer import Explorer
from regard.explorer.page_files import PAGE, content_policy, inline_hashes
from regard.explorer.request_types import LIMITS, AblationRequest, MissingError, TooBigError, WholeNumber, convert

MAX_BODY = 1_000_000
BODY_TIMEOUT = 15.0
"""Seconds within which the body of a request must arrive."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".safetensors": "application/octet-stream",
}
PORT = re.compile(r":\d*$")
PAGE_ADDRESS = re.compile(r"/(models/[^/]+/)?")

QueryAnswer = dict[str, Any] | bytes
RequiredText = Annotated[str, Meta(min_length=1)]
NeighbourCount = Annotated[int, Meta(ge=1, le=LIMITS.top)]
IdList = Annotated[str, Meta(pattern=r"^\d{0,9}(,\d{0,9})*$")]
PositionCount = Annotated[int, Meta(ge=1, le=1024)]


def create_app(
    explorer: Explorer, page: Path | None = None, hosts: Sequence[str] | None = (), others: Sequence[Explorer] = ()
) -> Starlette:
    """Returns the explorer as a web application, which accepts requests to localhost and the names in `hosts`.

    With `hosts=None`, it accepts requests to any name, because the server around it checks them. The pages of `others`
    are at models/NAME/; their names must differ.
    """
    guard = Middleware(Guard, hosts=None if hosts is None else (*LOCAL, *hosts), page=page or PAGE)
    handlers: dict[Any, Any] = {RegardError: answer_error, HTTPException: answer_error}
    models = [explorer, *others]
    mounts = [Mount(f"/models/{each.name}", routes=routes(each, page, list_models(models, each))) for each in others]
    own = routes(explorer, page, list_models(models, explorer))
    return Starlette(routes=[*mounts, *own], middleware=[guard], exception_handlers=handlers)


def list_models(models: Sequence[Explorer], current: Explorer) -> list[dict[str, str]]:
    """Returns the names of several models, and their URLs relative to the page of the current model."""
    if len(models) == 1:
        return []
    first = models[0]
    root = "" if current is first else "../../"
    return [
        {
            "name": each.name,
            "about": each.about,
            "address": "./" if each is current else root or "./" if each is first else f"{root}models/{each.name}/",
        }
        for each in models
    ]


def routes(explorer: Explorer, page: Path | None = None, models: Sequence[dict[str, str]] = ()) -> list[BaseRoute]:
    """Returns the routes of the explorer, for use in another application; all URLs in the page are relative."""
    web = ExplorerEndpoints(explorer, page or PAGE)
    return [
        Route("/", web.file),
        Route("/static/{path:path}", web.file),
        Route("/api/health", web.get(lambda: {"ok": True})),
        Route("/api/model", web.get(lambda: explorer.describe() | {"models": list(models)})),
        Route("/api/run", web.run, methods=["POST"]),
        Route("/api/run/{run}", web.get(web.again)),
        Route("/api/run/{run}/tensors", web.get(web.tensors)),
        Route("/api/ablate", web.ablate, methods=["POST"]),
        Route("/api/weights", web.get(web.weights)),
        Route("/api/weights/summary", web.get(web.summary)),
        Route("/api/embeddings/near", web.get(web.near)),
        Route("/api/embeddings/map", web.get(web.map)),
        Route("/api/positions", web.get(web.positions)),
        Route("/api/positions/tensor", web.get(web.position_tensor)),
        Route("/api/source", web.get(web.source)),
        Route("/api/lesson", web.lesson),
        Route("/api/export/{file}", web.export),
    ]


class ExplorerEndpoints:
    """The endpoints of the explorer; work on the model runs in threads, one request at a time."""

    def __init__(self, explorer: Explorer, page: Path) -> None:
        self.explorer, self.page = explorer, page
        self.lock = threading.Lock()

    async def work(self, job: Callable[[], Any]) -> Any:
        """Runs a job in a thread with exclusive use of the model, unless the client disconnects before its turn."""
        gone = threading.Event()

        def alone() -> Any:
            with self.lock:
                return None if gone.is_set() else job()

        try:
            return await run_in_threadpool(alone)
        finally:
            gone.set()

    def get(self, function: Callable[..., QueryAnswer]) -> Callable[[Request], Awaitable[Response]]:
        """Returns an endpoint that calls a function with the query; its annotations define the allowed parameters."""
        hints = get_type_hints(function, include_extras=True)
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        required = inspect.Parameter.empty
        fields = [(name, hints[name], NODEFAULT if each is required else each) for name, each in defaults.items()]
        kind = defstruct("Query", fields)

        async def endpoint(request: Request) -> Response:
            query = convert({**request.query_params, **request.path_params}, kind, strict=False)
            content = await self.work(lambda: function(**structs.asdict(query)))
            if isinstance(content, bytes):
                return Response(content, media_type="application/octet-stream")
            return JSONResponse(content)

        return endpoint

    def again(self, run: str) -> QueryAnswer:
        return self.explorer.find(run).answer

    def tensors(self, run: str, names: RequiredText, dtype: str = "f32") -> QueryAnswer:
        if dtype not in ("f16", "f32"):
            raise InputError(f"dtype: must be f16 or f32, not {dtype[:40]!r}")
        return export.pack(self.explorer.find(run), filter(None, names.split(",")), half=dtype == "f16")

    def weights(self, name: RequiredText, rows: str | None = None, columns: str | None = None) -> QueryAnswer:
        return export.safetensors_bytes({name: weights.weight_slice(self.explorer.anatomy, name, rows, columns)}, {})

    def summary(self, name: RequiredText) -> QueryAnswer:
        return weights.summarize(self.explorer.anatomy, name)

    def near(self, side: RequiredText, id: WholeNumber, k: NeighbourCount = 12) -> QueryAnswer:  # noqa: A002
        return space.near(self.explorer.anatomy, side, id, k, self.explorer.usage)

    def map(self, side: RequiredText, n: Annotated[int, Meta(ge=0, le=5000)] = 400, ids: IdList = "") -> QueryAnswer:
        extra = [int(each) for each in ids.split(",") if each]
        return space.embedding_map(self.explorer.anatomy, side, n, extra, self.explorer.usage)

    def positions(self, side: RequiredText, n: PositionCount = 64) -> QueryAnswer:
        return space.positions(self.explorer.anatomy, side, n)[0]

    def position_tensor(self, side: RequiredText, n: PositionCount = 64) -> QueryAnswer:
        about, rows = space.positions(self.explorer.anatomy, side, n)
        if rows is None:
            raise MissingError(f"positions: this model has no table of positions ({about['kind']})")
        return export.safetensors_bytes({"positions": rows}, {"positions": ("position", "width")})

    def source(self, name: RequiredText) -> QueryAnswer:
        return self.explorer.find_source(name)

    def lesson(self, request: Request) -> Response:
        lesson = find_lesson(self.explorer.lessons, request.query_params.get("name", ""))
        return Response(lesson.text, media_type=TYPES[".md"], headers={"Cache-Control": "no-cache"})

    def file(self, request: Request) -> Response:
        """Returns a file of the page; raises MissingError for paths outside its folder."""
        root, name = self.page.resolve(), request.path_params.get("path", "index.html")
        try:
            path = (root / name).resolve()
            if not path.is_relative_to(root) or path.suffix not in TYPES:
                raise FileNotFoundError
            content = path.read_bytes()
        except (OSError, ValueError):
            raise MissingError(f"{name[:100]}: the page has no such file") from None
        return Response(content, media_type=TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    async def run(self, request: Request) -> Response:
        body = await read_json(request)
        return JSONResponse(await self.work(lambda: self.explorer.run(body).answer))

    async def ablate(self, request: Request) -> Response:
        ablation = convert(await read_json(request), AblationRequest)
        gone = threading.Event()
        watching = asyncio.create_task(notice_leaving(request, gone))
        try:
            return JSONResponse(await self.work(lambda: find_effects(self.explorer, ablation, gone.is_set)))
        except ClientGoneError:
            return Response(status_code=499)  # the client has disconnected
        finally:
            gone.set()  # where the server cancels what nobody waits for, the ablation ends too
            watching.cancel()

    async def export(self, request: Request) -> Response:
        file = Path(request.path_params["file"])
        content = await self.work(lambda: export.export_run(self.explorer.find(file.stem), file.suffix, self.page))
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return Response(content, media_type=TYPES[file.suffix], headers=headers)


async def notice_leaving(request: Request, gone: threading.Event) -> None:
    """Sets `gone` when the client disconnects."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)
    gone.set()


def find_effects(explorer: Explorer, request: AblationRequest, gone: Callable[[], bool]) -> dict[str, Any]:
    """Returns the effects of an ablation, which are cached for each run."""
    run, key = explorer.find(request.run), repr(request)
    if key not in run.ablations:
        run.ablations[key] = ablate(run.passed, request.what, request.op, request.targets, gone)
    return run.ablations[key]


async def read_json(request: Request) -> dict[str, Any]:
    """Reads a JSON object of limited length from the body of a request, within a time limit."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"send the request as application/json, not as {kind[:40] or 'an unknown type'}")
    content = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                content += part
                if len(content) > MAX_BODY:
                    raise TooBigError(f"the request is longer than {MAX_BODY:,} bytes: shorten it")
    except TimeoutError:
        problem = f"the body of the request did not arrive within {BODY_TIMEOUT:g} seconds"
        raise HTTPException(408, problem, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(499, "the client has disconnected") from None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise InputError("the request must be a JSON object")
    return body


async def answer_error(_request: Request, error: Exception) -> Response:
    """Returns a one-line error message for a failed request."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    status = 404 if isinstance(error, MissingError) else 413 if isinstance(error, TooBigError) else 400
    return JSONResponse({"error": " ".join(str(error).split())}, status)


class Guard:
    """Middleware that accepts requests only from the explorer's own page, and sets a content security policy."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None, page: Path) -> None:
        self.app, self.page, self.any_host = app, page, hosts is None
        self.hosts = {host.lower() for host in hosts or ()}
        self.hosts |= {f"[{host}]" for host in self.hosts if ":" in host and not host.startswith("[")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        security = {
            b"content-security-policy": page_policy(self.page).encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
        }

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *security.items()]
            await send(message)

        refusal = self.refusal(Request(scope))
        await (refusal or self.app)(scope, receive, answer)

    def refusal(self, request: Request) -> Response | None:
        """Returns an error response if a request does not come from the explorer's own page, otherwise None."""
        hosts, site = request.headers.getlist("host"), request.headers.get("sec-fetch-site", "none")
        if len(hosts) > 1:
            return JSONResponse({"error": "the request has several Host headers"}, 400)
        name = PORT.sub("", hosts[0].lower()) if hosts else ""
        if not self.any_host and name not in self.hosts and not is_address(name):
            return JSONResponse({"error": f"this server does not answer to the name {name[:100]!r}"}, 400)
        origins = request.headers.getlist("origin")
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))  # within another server
        if any(authority(origin.partition("://")[2]) != authority(hosts[0]) for origin in origins) or (
            site not in ("same-origin", "none") and not PAGE_ADDRESS.fullmatch(path)
        ):
            return JSONResponse({"error": "this server accepts requests only from its own page"}, 403)
        return None


def authority(host: str) -> str:
    """Returns a host in lower case without the default ports: "LOCALHOST:80" -> "localhost"."""
    return re.sub(r":(80|443)?$", "", host.lower())


def page_policy(page: Path) -> str:
    """Returns the Content-Security-Policy of the page in a folder."""
    try:
        index = (page / "index.html").read_bytes()
    except OSError:
        index = b""
    return f"{content_policy(inline_hashes(index))}; frame-ancestors 'none'"
