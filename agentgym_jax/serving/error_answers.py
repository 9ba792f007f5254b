"""Error answers, in the form of the API that a route belongs to."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from agentgym_jax.serving.requests import NotServingError, OverloadedError, RequestError

TOO_LARGE, SLOW = "too_large", "timeout"
TOO_LONG = "context_length_exceeded"
_STATUS = {TOO_LARGE: 413, SLOW: 408}  # by code; other errors of a request are answered with 400
_NO_ROUTE = (
    "there is no such route (docs/serving.md lists them); the base URL of an OpenAI client ends in "
    "/v1, that of an Anthropic client does not"
)
_MESSAGES_ROUTES = ("/v1/messages", "/v1/messages/count_tokens")
# Types of Anthropic's errors by status; others are invalid_request_error and api_error.
_MESSAGES_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class UnknownEpisodeError(Exception):
    """There is no running episode of this name."""


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> dict:
    """Returns the body of an error in OpenAI's form."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def messages_error(message: str, status: int, code: str | None = None) -> dict:
    """Returns the body of an error in Anthropic's form, which has no code."""
    usual = "api_error" if status >= 500 else "invalid_request_error"
    if code == TOO_LONG:  # clients that shorten their history look for these words
        message = f"prompt is too long: {message}"
    error = {"type": _MESSAGES_TYPES.get(status, usual), "message": message}
    return {"type": "error", "error": error, "request_id": None}


def error_response(
    path: str,
    status: int,
    message: str,
    kind: str,
    code: str,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Returns an error answer for a route."""
    if path.endswith(_MESSAGES_ROUTES):
        return JSONResponse(messages_error(message, status, code), status, headers)
    return JSONResponse(error_body(message, kind, code, param), status, headers)


def _answer(status: int, kind: str, code: str, message: str = "", retry: int = 0) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        headers = {"Retry-After": str(retry)} if retry else None
        path = request.scope["path"]
        return error_response(path, status, message or str(error), kind, code, headers=headers)

    return answer


async def _answer_request_error(request: Request, error: Any) -> Response:
    status = _STATUS[error.code] if error.code in _STATUS else 400
    path, kind = request.scope["path"], "invalid_request_error"
    return error_response(path, status, str(error), kind, error.code, error.param)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


HANDLERS: dict[Any, Any] = {
    RequestError: _answer_request_error,
    UnknownEpisodeError: _answer(404, "not_found_error", "unknown_episode"),
    OverloadedError: _answer(429, "rate_limit_error", "overloaded", retry=1),
    NotServingError: _answer(503, "server_error", "not_serving", retry=5),
    404: _answer(404, "not_found_error", "unknown_url", _NO_ROUTE),
    405: _answer(405, "invalid_request_error", "method", "wrong method for this route"),
    ClientDisconnect: _answer_nobody,
    500: _answer(500, "server_error", "internal", "the server failed; see its log"),
}
