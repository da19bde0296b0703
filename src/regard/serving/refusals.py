"""Requests that are refused: why, with which status, and the form of the error in each interface."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from regard.errors import RegardError


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after  # seconds


class ErrorAnswer(Struct):
    """The reason for which a request was refused."""

    error: str


class BusyError(RegardError):
    """The queue is full, or the server is stopping."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class LateError(RegardError):
    """The answer was not ready before its deadline."""


def unknown_model(name: str) -> RefusedError:
    return RefusedError(404, f"The model `{name[:100]}` does not exist, or does not do this")


def refusal_for(error: RefusedError | RegardError) -> RefusedError:
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


def error_response(error: RefusedError, path: str = "") -> Response:
    """Returns the error in the form of the interface at this path, with the seconds after which to try again."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    body = openai_error(error) if path.startswith("/v1/") else {"error": " ".join(error.message.split())}
    return JSONResponse(body, error.status, headers)


def openai_error(error: RefusedError) -> dict[str, Any]:
    """Returns an error in OpenAI's form; messages that begin with the name of a parameter name it."""
    types = {401: "authentication_error", 429: "rate_limit_error"}
    codes = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    parameter, colon, _ = error.message.partition(": ")
    return {
        "error": {
            "message": error.message,
            "type": types.get(error.status, "invalid_request_error" if error.status < 500 else "server_error"),
            "param": parameter if colon and parameter.isidentifier() else None,
            "code": codes.get(error.status),
        }
    }
