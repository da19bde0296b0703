"""Reads requests from JSON, forms or query strings, and converts them to the request types of each API."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import Response

from regard.serving.client_limits import ServingLimits
from regard.serving.refusals import RefusedError
from regard.tokens.clean_text import SURROGATE

RequestType = TypeVar("RequestType", bound=msgspec.Struct)
ModelName = Annotated[str, Meta(min_length=1, description="the name of a model folder")]
TextInputs = Annotated[
    str | Annotated[list[str | int | Annotated[list[int], Meta(min_length=1)]], Meta(min_length=1)],
    Meta(description="a text, a list of texts, a list of token ids, or a list of lists of token ids"),
]
VALIDATION_ERROR = re.compile(r"(.*?)(?: - at (?:key in )?`\$\.?((\w*)[^`]*)`)?", re.DOTALL)
MISSING_FIELD = re.compile(r"Object missing required field `(\w+)`")


@dataclass(frozen=True)
class Upload:
    """A file sent by a client."""

    name: str  # file name without folders
    content: bytes


# The LibreTranslate API


async def read_values(request: Request, limits: ServingLimits) -> dict[str, Any]:
    """Returns the fields of a JSON body, a form or the query string.

    If a field occurs several times, the first value is used; several texts `q` become a list.
    """
    query: dict[str, Any] = dict(reversed(request.query_params.multi_items()))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        body = parse_object(await request.body())
        if body is None and not query.get("q"):  # one client sends a list, but has its fields in the query
            raise RefusedError(400, "Invalid JSON format")
        return {**query, **(body or {})}
    texts: list[str] = []
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        try:
            async with request.form(max_files=1, max_fields=200, max_part_size=limits.bytes) as form:
                for name, value in reversed(form.multi_items()):
                    query[name] = await _read_upload(value, limits) if isinstance(value, UploadFile) else value
                texts = [text for text in form.getlist("q") if isinstance(text, str)]
        except (HTTPException, MultiPartException, ValueError):
            raise RefusedError(400, "Invalid request: the form cannot be read") from None
    values = {name: _with_line_feeds(value) if isinstance(value, str) else value for name, value in query.items()}
    return {**values, "q": list(map(_with_line_feeds, texts))} if len(texts) > 1 else values


async def _read_upload(file: UploadFile, limits: ServingLimits) -> Upload:
    content = await file.read(limits.upload + 1)
    if len(content) > limits.upload:
        raise RefusedError(413, f"Invalid request: request ({len(content)}) exceeds text limit ({limits.upload})")
    return Upload(PurePosixPath((file.filename or "").replace("\\", "/")).name, content)


def _with_line_feeds(text: str) -> str:
    """Restores the line feeds of a text, which browsers convert to CRLF in forms."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def convert_values(values: dict[str, Any], kind: type[RequestType]) -> RequestType:
    """Converts values to a request of this type; error messages are worded like those of LibreTranslate."""
    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        name, reason = _explain(error)
    if reason == "is missing":
        message = f"Invalid request: missing {name} parameter"
    elif name == "q":
        message = "Invalid request: q must be a text or a list of texts"
    elif name == "format":
        message = f"{str(given[name])[:100]} format is not supported"
    elif name == "alternatives" and ">=" not in reason:
        message = "Invalid request: alternatives parameter is not a number"
    else:
        message = f"Invalid request: {name}: {reason}"
    raise RefusedError(400, message)


# The APIs of OpenAI and Hugging Face


async def read_object(request: Request, kind: type[RequestType], unsupported: Sequence[str] = ()) -> RequestType:
    """Converts a JSON body to a request of this type; raises an error if it contains an unsupported option."""
    body = parse_object(await request.body())
    if body is None:
        raise RefusedError(400, "the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    try:
        asked = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(400, ": ".join(_explain(error))) from None
    for name in unsupported:
        if given.get(name):
            raise RefusedError(400, f"{name}: not supported by this server")
    return asked


def inputs(given: str | list[Any], field: str) -> list[Any]:
    """Returns the inputs as a list of texts or lists of token ids."""
    if isinstance(given, str) or all(isinstance(each, int) for each in given):
        return [given]
    if any(isinstance(each, int) for each in given):
        raise RefusedError(400, f"{field}: must be a text, a list of texts, or token ids")
    return given


# All APIs


def respond(answer: Any) -> Response:
    """Returns an answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Returns a JSON object, or None if the body is something else."""
    try:
        value = _replace_surrogates(json.loads(body, parse_constant=_reject_constant))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return list(map(_replace_surrogates, value))
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(each) for name, each in value.items()}
    return value


def _explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """Returns the name of the invalid field, and the reason."""
    parts = VALIDATION_ERROR.fullmatch(str(error))
    assert parts is not None  # it matches any text
    reason, path, name = parts[1], parts[2] or "", parts[3] or ""
    missing = MISSING_FIELD.fullmatch(reason)
    if missing and not path:
        return missing[1], "is missing"
    reason = reason.replace("`", "")
    return name, reason[:1].lower() + reason[1:] + (f" at {path}" if path != name else "")
