"""JSON over HTTP for the evaluation's external services: a shop's REST interface, a judge."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

MAX_BYTES = 8 * 2**20


class HttpError(Exception):
    """Error for a request without a usable answer; the message has the address, never the request.

    Attributes:
      status: HTTP status; None if there was no response.
    """

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


async def fetch_json(
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float,
) -> Any:
    """Returns the answer to a GET, or to a POST if there is a body.

    Errors name the address but not the headers, so the address must not contain secrets. Each wait
    for the network can take `seconds`.

    Raises:
      HttpError: The answer did not arrive in time, its status is an error, or it is not JSON.
    """
    return await asyncio.to_thread(_fetch, url, body, headers or {}, seconds)


def _fetch(
    url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str], seconds: float
) -> Any:
    """Performs the blocking part of `fetch_json`."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data=data, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(f"{url} answered {error.code}", error.code) from None
    except (OSError, ValueError) as error:  # ValueError: the answer is not JSON or not text
        raise HttpError(f"{url}: {type(error).__name__}: {error}") from None
