"""Requests that are refused: why, with which status, and how each interface says it."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse, Response

from regard.errors import RegardError


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


class BusyError(RegardError):
    """The queue is full, or the server is stopping."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class LateError(RegardError):
    """The answer was not ready before its deadline."""


def refusal_of(error: RefusedError | RegardError) -> RefusedError:
    """Returns the refusal for a mistake of the client, a full queue or a missed deadline."""
    match error:
        case RefusedError():
            return error
        case BusyError():
            return RefusedError(429, "Slowdown: too many texts are waiting", error.retry_after)
        case LateError():
            return RefusedError(504, "The answer was not ready in time: send less at once")
        case _:
            return RefusedError(400, f"Invalid request: {error}")


def response_of(error: RefusedError, path: str = "") -> Response:
    """Returns the error in the form of the interface at this path, with the time to come back."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    plain = {"error": " ".join(error.message.split())}
    return JSONResponse(openai_error(error) if path.startswith("/v1/") else plain, error.status, headers)


def openai_error(error: RefusedError) -> dict[str, Any]:
    """Returns an error in OpenAI's form."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    name, _, rest = error.message.partition(": ")
    param = name if rest and name.isidentifier() else None
    code = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(error.status)
    return {"error": {"message": error.message, "type": kind, "param": param, "code": code}}
