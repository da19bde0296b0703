"""The OpenAPI document of what the server answers."""

from __future__ import annotations

from collections.abc import Sequence
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
            "description": "Translation in LibreTranslate's interface.",
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
        "api_key": TEXT,
    }
    answer = record(
        "translatedText",
        translatedText=text_or_texts,
        detectedLanguage=either(DETECTED),
        alternatives=either(listed(TEXT)),
    )
    form = {**asked, "q": TEXT}
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


def download_file() -> dict[str, Any]:
    return {
        "summary": "A translated file, for some minutes",
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": TEXT}],
        "responses": {
            **responses({}),
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
