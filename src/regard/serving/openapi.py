"""The OpenAPI document of the server, generated from the types that validate requests."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

import regard
from regard.serving import chat, encoder_endpoints as encoders, libretranslate as libre, openai
from regard.serving.refusals import ErrorAnswer

JSON = ("application/json",)
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
TEXT = {"type": "string"}
REFUSALS = {
    "400": "a parameter is missing, unknown or too long",
    "401": "the API key is missing or invalid",
    "403": "the API key is invalid, or the server does not allow this",
    "404": "the path, file or model does not exist",
    "408": "the request took too long to arrive",
    "413": "the request has too many bytes",
    "429": "too many requests; Retry-After says when to try again",
    "504": "the answer was not ready in time",
}
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
STYLE = (
    "body{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "td{padding:.1rem 1rem .1rem 0;vertical-align:top}h2{font-size:1.1rem;margin-top:2rem}"
)


class Endpoint(NamedTuple):
    """A path of the server, with the types of its request and answer."""

    path: str
    summary: str
    request: type[msgspec.Struct] | None = None
    answer: Any = dict  # dict stands for any JSON object
    kinds: tuple[str, ...] = JSON + FORMS  # accepted content types


ENDPOINTS = (
    Endpoint("/translate", "Translates one or several texts", libre.TranslateRequest, libre.TranslateAnswer),
    Endpoint("/detect", "Detects the most probable languages of a text", libre.DetectRequest, list[libre.Detected]),
    Endpoint("/languages", "Lists the source languages and their target languages", answer=list[libre.Language]),
    Endpoint("/translate_file", "Translates a file", libre.TranslateFileRequest, libre.TranslateFileAnswer, FORMS[1:]),
    Endpoint("/download_file/{name}", "Returns a translated file, for some minutes", answer=bytes),
    Endpoint("/suggest", "Rejects suggestions of translations with status 403", libre.SuggestRequest),
    Endpoint("/frontend/settings", "Returns the settings for a translation page"),
    Endpoint("/health", "Reports that the server is ready", answer=libre.HealthAnswer),
    Endpoint("/v1/models", "Lists the models"),
    Endpoint("/v1/completions", "Continues a text", openai.CompletionRequest, kinds=JSON),
    Endpoint("/v1/chat/completions", "Continues a conversation, or translates", chat.ChatRequest, kinds=JSON),
    Endpoint("/v1/embeddings", "Turns texts into vectors", encoders.EmbeddingRequest, kinds=JSON),
    Endpoint("/fill-mask", "Fills gaps", encoders.FillMaskRequest, encoders.FillMaskAnswer, JSON),
    Endpoint("/text-classification", "Labels texts", encoders.TextLabelRequest, list[list[encoders.ScoredLabel]], JSON),
    Endpoint("/token-classification", "Labels words", encoders.WordLabelRequest, encoders.WordLabelAnswer, JSON),
    Endpoint("/spec", "Returns this document"),
)


@cache
def document() -> dict[str, Any]:
    """Returns the OpenAPI document as a JSON object."""
    types = [kind for each in ENDPOINTS for kind in (each.request, each.answer) if kind not in (None, dict, bytes)]
    types.append(ErrorAnswer)
    references, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(map(str, types), references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Regard",
            "version": regard.__version__,
            "description": "Translates texts with the API of LibreTranslate, writes and embeds texts with the API of "
            "OpenAI, and fills gaps and labels texts with the API of Hugging Face.",
        },
        "paths": {each.path: _operation(each, schemas) for each in ENDPOINTS},
        "components": {"schemas": components},
    }


def _operation(each: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the OpenAPI description of one endpoint."""
    in_openai = each.path.startswith("/v1/")
    refusal = {"type": "object"} if in_openai else schemas[str(ErrorAnswer)]
    responses = {code: _response(text, {JSON[0]: refusal}) for code, text in REFUSALS.items()}
    answer = {
        JSON[0]: schemas.get(str(each.answer), {"type": "object"}),
        **({"text/event-stream": TEXT} if in_openai else {}),
    }
    operation: dict[str, Any] = {"summary": each.summary, "responses": responses}
    if each.answer is bytes:
        answer = {"application/octet-stream": {"type": "string", "format": "binary"}}
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": TEXT}]
        responses["404"]["content"]["text/html"] = {"schema": TEXT}
    responses["200"] = _response("the answer", answer)
    if each.request is None:
        return {"get": operation}
    content = {kind: {"schema": schemas[str(each.request)]} for kind in each.kinds}
    return {"post": {**operation, "requestBody": {"required": True, "content": content}}}


def _response(text: str, kinds: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": each} for kind, each in kinds.items()}}


def routes() -> list[BaseRoute]:
    """Returns the routes of the OpenAPI document and of its HTML page."""

    async def spec(_request: Request) -> Response:
        return JSONResponse(document())

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": PAGE_POLICY})

    return [Route("/spec", spec), Route("/docs", docs)]


def page() -> str:
    """Returns the OpenAPI document as an HTML page."""
    about = document()
    parts = [f"<h1>{escape(about['info']['title'])}</h1><p>{escape(about['info']['description'])}</p>"]
    for each in ENDPOINTS:
        method = "GET" if each.request is None else "POST"
        parts.append(f"<h2>{method} {escape(each.path)}</h2><p>{escape(each.summary)}</p>")
        if each.request is not None:
            fields = about["components"]["schemas"][each.request.__name__]
            rows = [_field_row(name, field, name in fields["required"]) for name, field in fields["properties"].items()]
            parts.append(f"<p>{escape(', '.join(each.kinds))}</p><table>{''.join(rows)}</table>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Regard</title><style>{STYLE}</style>'
        f'<meta name="viewport" content="width=device-width">{"".join(parts)}<p><a href="spec">OpenAPI</a></p>'
    )


def _field_row(name: str, field: dict[str, Any], required: bool) -> str:
    kinds = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
    kind = " or ".join(str(each.get("type", "choice" if "enum" in each else "object")) for each in kinds)
    default = f"default {field['default']}" if field.get("default") is not None else ""
    cells = (name, kind, "required" if required else default, field.get("description", ""))
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>"
