"""The OpenAPI document of what the server answers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import regard

TEXT = {"type": "string"}
ERROR = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
DETECTED = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": TEXT},
}


def specification(codes: Sequence[str]) -> dict[str, Any]:
    """What can be asked and how it is answered, in OpenAPI 3."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Regard",
            "version": regard.__version__,
            "description": "Translation in LibreTranslate's interface; writing and embedding in OpenAI's.",
        },
        "paths": {
            "/translate": {"post": translate(codes)},
            "/detect": {"post": detect()},
            "/languages": {"get": got("Languages and what each is translated into", listed(language()))},
            "/translate_file": {"post": translate_file()},
            "/download_file/{name}": {"get": download_file()},
            "/suggest": {"post": suggest()},
            "/frontend/settings": {"get": got("What a page has to know", {"type": "object"})},
            "/health": {"get": got("Whether the server is there", record("status", status=TEXT))},
            "/v1/models": {"get": in_openai("Models", [])},
            "/v1/completions": {"post": completions()},
            "/v1/chat/completions": {"post": chat()},
            "/v1/embeddings": {"post": embeddings()},
            "/spec": {"get": got("This document", {"type": "object"})},
        },
    }


def translate(codes: Sequence[str]) -> dict[str, Any]:
    text_or_texts = either(TEXT)
    asked = {
        "q": {**text_or_texts, "description": "a text, or, in JSON, several"},
        "source": {"type": "string", "description": f"auto, or one of {', '.join(codes)}"},
        "target": {"type": "string", "description": f"one of {', '.join(codes)}"},
        "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
        "alternatives": {"type": "integer", "minimum": 0, "default": 0},
        "scores": {"type": "boolean", "default": False, "description": "answer with scores and confidence"},
        "flags": {"type": "boolean", "default": False, "description": "answer with what a person has to look at"},
        "alignment": {"type": "boolean", "default": False, "description": "answer with what each token looked at"},
        "glossary": {"type": "object", "additionalProperties": TEXT, "description": "terms, in JSON only"},
        "api_key": TEXT,
    }
    answer = record(
        "translatedText",
        translatedText=text_or_texts,
        detectedLanguage=either(DETECTED),
        alternatives=either(listed(TEXT)),
    )
    form = {**{name: field for name, field in asked.items() if name != "glossary"}, "q": TEXT}
    return posted("Translates a text or several", ["q", "source", "target"], asked, form, answer)


def detect() -> dict[str, Any]:
    asked = {"q": either(TEXT), "api_key": TEXT}
    return posted("The likeliest languages of a text", ["q"], asked, {**asked, "q": TEXT}, listed(DETECTED))


def translate_file() -> dict[str, Any]:
    form = {"file": {"type": "string", "format": "binary"}, "source": TEXT, "target": TEXT, "api_key": TEXT}
    body = {"multipart/form-data": {"schema": {**record("file", "source", "target", **form)}}}
    return {
        "summary": "Translates a file",
        "requestBody": {"required": True, "content": body},
        "responses": responses(record("translatedFileUrl", translatedFileUrl=TEXT)),
    }


def completions() -> dict[str, Any]:
    number, flag = {"type": "number"}, {"type": "boolean"}
    text_or_tokens = {"oneOf": [TEXT, listed(TEXT), listed({"type": "integer"}), listed(listed({"type": "integer"}))]}
    asked = {
        "model": TEXT,
        "prompt": text_or_tokens,
        "max_tokens": {"type": "integer", "default": 16},
        "temperature": {**number, "default": 1},
        "top_p": {**number, "default": 1},
        "n": {"type": "integer", "default": 1},
        "best_of": {"type": "integer"},
        "stop": either(TEXT),
        "seed": {"type": "integer"},
        "logprobs": {"type": "integer"},
        "echo": flag,
        "stream": flag,
    }
    return in_openai("Continues a text", ["model", "prompt"], asked)


def chat() -> dict[str, Any]:
    part = record("type", "text", type={"type": "string", "enum": ["text"]}, text=TEXT)
    roles = {"type": "string", "enum": ["system", "developer", "user", "assistant"]}
    message = record("role", "content", role=roles, content={"oneOf": [TEXT, listed(part)]})
    whole, flag = {"type": "integer"}, {"type": "boolean"}
    asked = {
        "model": {**TEXT, "description": "one that writes, or a direction such as en-de"},
        "messages": {**listed(message), "minItems": 1},
        "max_completion_tokens": whole,
        "max_tokens": whole,
        "temperature": {"type": "number", "default": 1},
        "top_p": {"type": "number", "default": 1},
        "n": {**whole, "default": 1},
        "stop": either(TEXT),
        "seed": whole,
        "logprobs": flag,
        "top_logprobs": whole,
        "stream": flag,
    }
    return in_openai("Goes on with a conversation, or translates what the user said last", ["model", "messages"], asked)


def embeddings() -> dict[str, Any]:
    asked = {"model": TEXT, "input": either(TEXT), "encoding_format": {"type": "string", "enum": ["float", "base64"]}}
    return in_openai("Texts as vectors", ["model", "input"], asked)


def in_openai(summary: str, needed: list[str], asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """What OpenAI's interface has: its answers and errors have a form of their own."""
    codes = ("200", "400", "401", "404", "408", "413", "429")
    told = {code: described("in OpenAI's form", {"type": "object"}) for code in codes}
    told["200"]["content"]["text/event-stream"] = {"schema": TEXT}
    body = {"application/json": {"schema": record(*needed, **(asked or {}))}}
    return {
        "summary": summary,
        "responses": told,
        **({"requestBody": {"required": True, "content": body}} if asked else {}),
    }


def download_file() -> dict[str, Any]:
    missing = described("there is no such file", ERROR)
    missing["content"]["text/html"] = {"schema": TEXT}
    return {
        "summary": "A translated file, for some minutes",
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": TEXT}],
        "responses": {
            **responses({}),
            "404": missing,
            "200": {
                "description": "the file",
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            },
        },
    }


def suggest() -> dict[str, Any]:
    asked = {"q": TEXT, "s": TEXT, "source": TEXT, "target": TEXT, "api_key": TEXT}
    answer = record("success", success={"type": "boolean"})
    return posted("Suggestions are not taken: 403", ["q", "s", "source", "target"], asked, asked, answer)


def posted(
    summary: str, needed: list[str], in_json: dict[str, Any], in_form: dict[str, Any], answer: dict[str, Any]
) -> dict[str, Any]:
    """What is asked in JSON or as a form."""
    kinds = {
        "application/json": in_json,
        "application/x-www-form-urlencoded": in_form,
        "multipart/form-data": in_form,
    }
    content = {kind: {"schema": record(*needed, **fields)} for kind, fields in kinds.items()}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": responses(answer),
    }


def got(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": responses(answer)}


def responses(answer: dict[str, Any]) -> dict[str, Any]:
    """A good answer, and the bad ones."""
    bad = {
        "400": "something is missing, unknown or too long",
        "403": "the key is wrong, or this is switched off",
        "404": "there is no such thing",
        "408": "the request took too long to arrive",
        "413": "the request has too many bytes",
        "429": "too many requests: Retry-After tells when to come again",
        "504": "no answer was found in time",
    }
    told = {code: described(text, ERROR) for code, text in bad.items()}
    return {"200": described("the answer", answer), **told}


def described(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def language() -> dict[str, Any]:
    return record("code", "name", "targets", code=TEXT, name=TEXT, targets=listed(TEXT))


def record(*needed: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(needed), "properties": fields}


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def either(schema: dict[str, Any]) -> dict[str, Any]:
    """One, or a list of them."""
    return {"oneOf": [schema, listed(schema)]}


def page(document: dict[str, Any]) -> str:
    """The document for people."""
    parts = [f"<h1>{escape(document['info']['title'])}</h1><p>{escape(document['info']['description'])}</p>"]
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(about['summary'])}</p>")
            bodies = list(about.get("requestBody", {}).get("content", {}).items())
            if bodies:
                schema = bodies[0][1]["schema"]
                rows = [_row(name, field, name in schema["required"]) for name, field in schema["properties"].items()]
                kinds = escape(", ".join(kind for kind, _ in bodies))
                parts.append(f"<p>{kinds}</p><table>{''.join(rows)}</table>")
    style = "body{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    style += "td{padding:.1rem 1rem .1rem 0;vertical-align:top}h2{font-size:1.1rem;margin-top:2rem}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Regard</title><style>{style}</style>'
        f'<meta name="viewport" content="width=device-width">{"".join(parts)}<p><a href="spec">OpenAPI</a></p>'
    )


def _row(name: str, field: dict[str, Any], needed: bool) -> str:
    kind = field.get("type") or "one or several"
    more = ", ".join([*(["needed"] if needed else []), *([f"else {field['default']}"] if "default" in field else [])])
    return "".join(f"<td>{escape(text)}</td>" for text in (name, kind, more, field.get("description", ""))).join(
        ("<tr>", "</tr>")
    )
