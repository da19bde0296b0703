"""What a request says: JSON, forms, files and query strings, as they come from clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from regard.serving.limits import Limits
from regard.serving.refusals import RefusedError
from regard.text.doctor import SURROGATE
from regard.text.glossary import Glossary, Term


def bearer(request: Request) -> str:
    """The key in the header of a request."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def read_values(request: Request, limits: Limits) -> dict[str, Any]:
    """What a request says: JSON, a form, or its query string; of several values of a name, the first, but all texts."""
    query = first_of(request.query_params.multi_items())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return await read_json(request, query)
    several: list[str] = []
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        try:
            async with request.form(max_files=1, max_fields=200, max_part_size=limits.bytes) as form:
                query |= {name: await received(value, limits) for name, value in first_of(form.multi_items()).items()}
                several = [text for text in form.getlist("q") if isinstance(text, str)]
        except (HTTPException, MultiPartException, ValueError):
            raise RefusedError(400, "Invalid request: the form cannot be read") from None
    values = {name: with_line_feeds(value) if isinstance(value, str) else value for name, value in query.items()}
    return {**values, "q": list(map(with_line_feeds, several))} if len(several) > 1 else values


@dataclass(frozen=True)
class Upload:
    """A file that was sent."""

    name: str  # without the folders that it was in
    content: bytes


async def received(value: str | UploadFile, limits: Limits) -> str | Upload:
    """A value of a form, or a file in it."""
    if isinstance(value, str):
        return value
    content = await value.read(limits.upload + 1)
    if len(content) > limits.upload:
        raise RefusedError(413, f"Invalid request: request ({len(content)}) exceeds text limit ({limits.upload})")
    return Upload(PurePosixPath((value.filename or "").replace("\\", "/")).name, content)


async def read_json(request: Request, query: dict[str, Any]) -> dict[str, Any]:
    """The object in a body; one client sends a list with nothing in it, and means its query string."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        if query.get("q"):
            return query
        raise RefusedError(400, "Invalid JSON format")
    return {**query, **body}


def first_of(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(items))


def with_line_feeds(text: str) -> str:
    """A text of a form, whose line ends browsers change."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def texts_of(values: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The texts of a request, and whether it is a list of them; half characters are made whole."""
    given = values.get("q")
    if not given:
        raise RefusedError(400, "Invalid request: missing q parameter")
    several = isinstance(given, list)
    texts = given if several else [given]
    if not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "Invalid request: q must be a text or a list of texts")
    return [SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text) for text in texts], several


def required(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not value:
        raise RefusedError(400, f"Invalid request: missing {name} parameter")
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", str(value))


def whole_number(value: Any, name: str, most: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise RefusedError(400, f"Invalid request: {name} parameter is not a number") from None
    if number > most:
        raise RefusedError(400, f"Invalid request: {name} parameter must be <= {most}")
    return max(0, number)


def is_true(value: Any) -> bool:
    return value is True or str(value).lower() in ("1", "true", "yes")


def glossary_of(values: Mapping[str, Any], source: str, target: str) -> Glossary | None:
    """Terms that come with a request: what each is called in the other language."""
    given = values.get("glossary")
    if not given:
        return None
    if not isinstance(given, dict) or len(given) > MOST_TERMS:
        raise RefusedError(400, f"Invalid request: glossary must be an object of at most {MOST_TERMS} terms")
    if not all(isinstance(text, str) and 0 < len(text.strip()) <= 100 for pair in given.items() for text in pair):
        raise RefusedError(400, "Invalid request: glossary must have a text of up to 100 characters for each term")
    return Glossary([Term(term, (meaning,)) for term, meaning in given.items()], source, target)


MOST_TERMS = 100
