"""ASGI middleware that judges a request before it is parsed: size of the body, bearer token."""

import hmac
import json
from typing import Any

from agentgym_envs.base.protocol import STATUS, ErrorKind


class BodyLimit:
    """Answers 413 to bodies above a limit, whether or not they declare their length.

    Args:
      app: the ASGI application behind it.
      max_body_bytes: longest body that is let through.
    """

    def __init__(self, app: Any, max_body_bytes: int):
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Reads the body, bounded, and replays it to the application as one message."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > self._max_body_bytes:
            await self._refuse(send)
            return
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._max_body_bytes:
                await self._refuse(send)
                return
            more = message.get("more_body", False)
        replay = {"type": "http.request", "body": b"".join(chunks), "more_body": False}
        pending = [replay]

        async def receive_again() -> Any:
            return pending.pop() if pending else await receive()

        await self._app(scope, receive_again, send)

    async def _refuse(self, send: Any) -> None:
        await send_error(
            send,
            ErrorKind.TOO_LARGE,
            f"the body is larger than {self._max_body_bytes} bytes. Send a shorter action.",
        )


class BearerToken:
    """Answers 401 unless the request carries `Authorization: Bearer <token>`.

    Args:
      app: the ASGI application behind it.
      token: the expected token.
    """

    def __init__(self, app: Any, token: str):
        self._app = app
        self._expected = b"Bearer " + token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Compares in constant time, so that the token cannot be guessed byte by byte."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                await send_error(
                    send,
                    ErrorKind.UNAUTHORIZED,
                    "bearer token missing or wrong. Send the header "
                    "`Authorization: Bearer <content of the server's --token-file>`.",
                )
                return
        await self._app(scope, receive, send)


async def send_error(send: Any, kind: ErrorKind, message: str) -> None:
    """Sends a typed error body and asks for the connection to be closed."""
    body = json.dumps({"error": message, "type": str(kind)}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # an unread body would be taken for the next request
    ]
    await send({"type": "http.response.start", "status": STATUS[kind], "headers": headers})
    await send({"type": "http.response.body", "body": body})
