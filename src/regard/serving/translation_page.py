"""The translation page: its files, and the permissions that a browser gives it."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

PAGE = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""The page loads its own files, sends requests to its own server, and cannot turn texts into markup."""


def routes() -> list[BaseRoute]:
    """Returns routes to the page and its files, which are looked up in a table: no path comes from a client."""
    files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404)
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers=headers)

    return [Route("/", file), Route("/static/{name}", file)]
