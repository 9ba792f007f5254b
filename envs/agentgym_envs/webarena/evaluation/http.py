"""JSON over HTTP for what evaluation asks of others: a shop's REST interface, a judge."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

MAX_BYTES = 8 * 2**20


class HttpError(Exception):
    """No usable answer; the message has the address and never what was sent.

    Attributes:
      status: HTTP status, or None if nothing answered.
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
    """Answer to a GET, or to a POST if there is a body.

    Args:
      url: address, without secrets: errors name it.
      body: JSON object to send.
      headers: sent as they are; errors do not name them.
      seconds: how long each wait for the network may take.

    Raises:
      HttpError: nothing answered in time, the status is no success, or it is not JSON.
    """
    return await asyncio.to_thread(_fetch, url, body, headers or {}, seconds)


def _fetch(
    url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str], seconds: float
) -> Any:
    """The blocking part of `fetch_json`."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data=data, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(f"{url} answered {error.code}", error.code) from None
    except (OSError, ValueError) as error:  # ValueError: no JSON, no text
        raise HttpError(f"{url}: {type(error).__name__}: {error}") from None
