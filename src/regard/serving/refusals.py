"""Errors with which the server answers requests: their status, message and format in each API."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from regard.errors import RegardError


class RefusedError(Exception):
    """Raised to answer a request with an HTTP error status and a message."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after  # seconds


class ErrorAnswer(Struct):
    """The answer to a rejected request: an error message."""

    error: str


class BusyError(RegardError):
    """Raised when the queue is full or the server is stopping."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class LateError(RegardError):
    """Raised when an answer is not ready before its deadline."""


def unknown_model(name: str) -> RefusedError:
    return RefusedError(404, f"The model `{name[:100]}` does not exist, or does not support this request")


def refusal_for(error: RefusedError | RegardError) -> RefusedError:
    """Returns the HTTP error for an exception: an invalid request, a full queue or a missed deadline."""
    match error:
        case RefusedError():
            return error
        case BusyError():
            return RefusedError(429, "Slowdown: too many texts are waiting", error.retry_after)
        case LateError():
            return RefusedError(504, "The answer was not ready in time: send shorter requests")
        case _:
            return RefusedError(400, f"Invalid request: {error}")


def error_response(error: RefusedError, path: str = "") -> Response:
    """Returns the error as a response in the format of the API at `path`, with a Retry-After header if possible."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    body = openai_error(error) if path.startswith("/v1/") else {"error": " ".join(error.message.split())}
    return JSONResponse(body, error.status, headers)


def openai_error(error: RefusedError) -> dict[str, Any]:
    """Returns an error in the format of OpenAI; `param` is the parameter with which the message begins, if any."""
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
