"""Reads requests in JSON, a form or the query string, and converts them to their types in the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from regard.serving.client_limits import ServingLimits
from regard.serving.refusals import RefusedError
from regard.tokens.clean_text import SURROGATE

T = TypeVar("T", bound=msgspec.Struct)
MISSING = re.compile(r"Object missing required field `(\w+)`")
WHERE = re.compile(r"(.*?)(?: - at (?:key in )?`\$\.?([^`]*)`)?", re.DOTALL)


@dataclass(frozen=True)
class Upload:
    """A file that a client sent."""

    name: str  # without its folders
    content: bytes


def bearer(request: Request) -> str:
    """Returns the key in the header of a request."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


# LibreTranslate's interface


async def read_values(request: Request, limits: ServingLimits) -> dict[str, Any]:
    """Returns JSON, a form, or the query string; of several values with one name the first, but all texts."""
    query = first_of(request.query_params.multi_items())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        body = parse_object(await request.body())
        if body is None and not query.get("q"):  # one client sends a list, and means its query string
            raise RefusedError(400, "Invalid JSON format")
        return {**query, **(body or {})}
    texts: list[str] = []
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        try:
            async with request.form(max_files=1, max_fields=200, max_part_size=limits.bytes) as form:
                query |= {name: await received(value, limits) for name, value in first_of(form.multi_items()).items()}
                texts = [text for text in form.getlist("q") if isinstance(text, str)]
        except (HTTPException, MultiPartException, ValueError):
            raise RefusedError(400, "Invalid request: the form cannot be read") from None
    values = {name: with_line_feeds(value) if isinstance(value, str) else value for name, value in query.items()}
    return {**values, "q": list(map(with_line_feeds, texts))} if len(texts) > 1 else values


async def received(value: str | UploadFile, limits: ServingLimits) -> str | Upload:
    """Returns a value of a form, or a file in it."""
    if isinstance(value, str):
        return value
    content = await value.read(limits.upload + 1)
    if len(content) > limits.upload:
        raise RefusedError(413, f"Invalid request: request ({len(content)}) exceeds text limit ({limits.upload})")
    return Upload(PurePosixPath((value.filename or "").replace("\\", "/")).name, content)


def convert_values(values: dict[str, Any], kind: type[T]) -> T:
    """Returns values as a request of this kind; what is wrong is said in LibreTranslate's words."""
    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        name, reason = explain(error)
    match name:
        case _ if reason == "is missing":
            message = f"Invalid request: missing {name} parameter"
        case "q":
            message = "Invalid request: q must be a text or a list of texts"
        case "format":
            message = f"{str(given[name])[:100]} format is not supported"
        case "alternatives" if ">=" not in reason:
            message = "Invalid request: alternatives parameter is not a number"
        case _:
            message = f"Invalid request: {name}: {reason}"
    raise RefusedError(400, message)


def first_of(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(items))


def with_line_feeds(text: str) -> str:
    """Returns a text of a form with its own line ends, which browsers change."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


# OpenAI's interface


async def read_object(request: Request, kind: type[T], unsupported: Sequence[str] = ()) -> T:
    """Returns the JSON body as a request of this kind; what cannot be done is refused rather than left out."""
    body = parse_object(await request.body())
    if body is None:
        raise RefusedError(400, "the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    try:
        found = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(400, ": ".join(explain(error))) from None
    for name in unsupported:
        if given.get(name):
            raise RefusedError(400, f"{name}: is not supported by this server")
    return found


# Both


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Returns a JSON object, or None if the body is something else."""
    try:
        found = whole(json.loads(body, parse_constant=refuse_constant))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def whole(value: Any) -> Any:
    """Returns a value of JSON without half characters, which no tokenizer reads."""
    if isinstance(value, str):
        return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return list(map(whole, value))
    return {whole(name): whole(each) for name, each in value.items()} if isinstance(value, dict) else value


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """Returns the name of the field that is wrong, and what is wrong with it."""
    found = WHERE.fullmatch(str(error))
    reason, path = (found[1], found[2] or "") if found else (str(error), "")
    missing = MISSING.fullmatch(reason)
    if missing and not path:
        return missing[1], "is missing"
    name, nested = re.match(r"\w*", path)[0], path  # type: ignore[index]  # it matches anything
    reason = reason.replace("`", "")
    where = f" at {nested}" if nested != name else ""
    return name, reason[:1].lower() + reason[1:] + where
