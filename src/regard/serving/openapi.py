"""The OpenAPI document, made of the types that check requests."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any, NamedTuple

import msgspec

import regard
from regard.serving import request_schema as schema

JSON = ("application/json",)
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
TEXT = {"type": "string"}
REFUSALS = {
    "400": "something is missing, unknown or too long",
    "401": "the key is wrong",
    "403": "the key is wrong, or this is switched off",
    "404": "there is no such thing",
    "408": "the request took too long to arrive",
    "413": "the request has too many bytes",
    "429": "too many requests: Retry-After says when to come back",
    "504": "the answer was not ready in time",
}


class Endpoint(NamedTuple):
    """An address with the types of its request and its answer."""

    path: str
    summary: str
    request: type[msgspec.Struct] | None = None
    kinds: tuple[str, ...] = JSON
    answer: Any = dict  # in OpenAI's interface: an object in its form


ENDPOINTS = (
    Endpoint(
        *("/translate", "Translates a text or several", schema.TranslateRequest, JSON + FORMS),
        schema.TranslateAnswer,
    ),
    Endpoint(
        *("/detect", "Detects the likeliest languages of a text", schema.DetectRequest, JSON + FORMS),
        list[schema.Detected],
    ),
    Endpoint("/languages", "Lists languages and what each is translated into", answer=list[schema.Language]),
    Endpoint(
        *("/translate_file", "Translates a file", schema.TranslateFileRequest, FORMS[1:]),
        schema.TranslateFileAnswer,
    ),
    Endpoint("/download_file/{name}", "Returns a translated file, for some minutes", answer=bytes),
    Endpoint("/suggest", "Refuses suggestions: 403", schema.SuggestRequest, JSON + FORMS),
    Endpoint("/frontend/settings", "Returns what a page needs to know"),
    Endpoint("/health", "Says whether the server is ready", answer=schema.HealthAnswer),
    Endpoint("/v1/models", "Lists the models"),
    Endpoint("/v1/completions", "Continues a text", schema.CompletionRequest),
    Endpoint(
        "/v1/chat/completions", "Continues a conversation, or translates the user's last message", schema.ChatRequest
    ),
    Endpoint("/v1/embeddings", "Turns texts into vectors", schema.EmbeddingRequest),
    Endpoint("/spec", "Returns this document"),
)


@cache
def document() -> dict[str, Any]:
    """Returns the OpenAPI document."""
    types = [kind for each in ENDPOINTS for kind in (each.request, each.answer) if kind not in (None, dict, bytes)]
    found, components = msgspec.json.schema_components(
        [schema.ErrorAnswer, *types], ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(map(str, [schema.ErrorAnswer, *types]), found, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Regard",
            "version": regard.__version__,
            "description": "Translation in LibreTranslate's interface; writing and embedding in OpenAI's.",
        },
        "paths": {each.path: operations(each, schemas) for each in ENDPOINTS},
        "components": {"schemas": components},
    }


def operations(each: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns what OpenAPI says of an address."""
    openai = each.path.startswith("/v1/")
    refusal = {"type": "object"} if openai else schemas[str(schema.ErrorAnswer)]
    responses = {code: described(text, {"application/json": refusal}) for code, text in REFUSALS.items()}
    answer = {"application/json": schemas.get(str(each.answer), {"type": "object"})}
    if openai:
        answer["text/event-stream"] = TEXT
    found: dict[str, Any] = {"summary": each.summary, "responses": responses}
    if each.answer is bytes:
        answer = {"application/octet-stream": {"type": "string", "format": "binary"}}
        found["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": TEXT}]
        responses["404"]["content"]["text/html"] = {"schema": TEXT}
    responses["200"] = described("the answer", answer)
    if each.request is None:
        return {"get": found}
    content = {kind: {"schema": schemas[str(each.request)]} for kind in each.kinds}
    return {"post": {**found, "requestBody": {"required": True, "content": content}}}


def described(text: str, kinds: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": each} for kind, each in kinds.items()}}


def page() -> str:
    """Returns the document for people, as HTML."""
    about = document()
    parts = [f"<h1>{escape(about['info']['title'])}</h1><p>{escape(about['info']['description'])}</p>"]
    for each in ENDPOINTS:
        method = "GET" if each.request is None else "POST"
        parts.append(f"<h2>{method} {escape(each.path)}</h2><p>{escape(each.summary)}</p>")
        if each.request is not None:
            fields = about["components"]["schemas"][each.request.__name__]
            rows = [row(name, field, name in fields["required"]) for name, field in fields["properties"].items()]
            parts.append(f"<p>{escape(', '.join(each.kinds))}</p><table>{''.join(rows)}</table>")
    style = "body{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    style += "td{padding:.1rem 1rem .1rem 0;vertical-align:top}h2{font-size:1.1rem;margin-top:2rem}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Regard</title><style>{style}</style>'
        f'<meta name="viewport" content="width=device-width">{"".join(parts)}<p><a href="spec">OpenAPI</a></p>'
    )


def row(name: str, field: dict[str, Any], required: bool) -> str:
    """Returns a field of a request as a row of a table."""
    kinds = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
    kind = " or ".join(str(each.get("type", "choice" if "enum" in each else "object")) for each in kinds)
    more = "required" if required else f"default {field['default']}" if field.get("default") is not None else ""
    cells = (name, kind, more, field.get("description", ""))
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>"
