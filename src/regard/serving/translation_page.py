"""The translation page: its routes and its content security policy."""

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
"""Content security policy: the page loads only its own files, calls only its own server, and cannot parse HTML."""


def routes() -> list[BaseRoute]:
    """Returns the routes of the page and its files, which are looked up by name, never by a path from a client."""
    files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404)
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers=headers)

    return [Route("/", file), Route("/static/{name}", file)]
