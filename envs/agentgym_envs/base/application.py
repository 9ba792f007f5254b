"""From a request to an answer: fixed paths, bounded bodies, an optional token.

A web framework would spend more time on a step than a text game does, and the paths of a
server are known and need no patterns.
"""

import contextlib
import dataclasses
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping

from agentgym_envs.base.protocol import STATUS, ErrorKind


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What an endpoint sees of a request.

    Attributes:
      path: without the query.
      query: as sent, such as `b"id=3"`.
      content_type: value of the header, lower case; empty if it was not sent.
      turn: value of TURN_HEADER; empty if it was not sent.
      body: all of it.
    """

    path: str
    query: bytes
    content_type: bytes
    turn: bytes
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A JSON body and its status; `is_last` asks for the connection to be closed."""

    body: bytes
    status: int = 200
    is_last: bool = False


Endpoint = Callable[[Request], Awaitable[Answer]]
NOT_FOUND = Answer(b'{"detail":"Not Found"}', 404)
NOT_ALLOWED = Answer(b'{"detail":"Method Not Allowed"}', 405)


def typed_error(kind: ErrorKind, message: str, *, is_last: bool = False) -> Answer:
    """The protocol's error body with its status."""
    return Answer(json.dumps({"error": message, "type": kind}).encode(), STATUS[kind], is_last)


@dataclasses.dataclass(frozen=True)
class Application:
    """What a server serves.

    Attributes:
      routes: path -> method -> endpoint.
      lifespan: entered before the first request, left after the last.
      max_body_bytes: longest body that is read, whether or not its length is declared.
      authorization: value of the header `Authorization` that every request must carry; None for
        no such header.
    """

    routes: Mapping[str, Mapping[str, Endpoint]]
    lifespan: Callable[[], contextlib.AbstractAsyncContextManager[None]]
    max_body_bytes: int
    authorization: bytes | None

    def find(self, method: str, path: str, authorization: bytes) -> Endpoint | Answer:
        """What answers a request, or the answer of one that no endpoint gets to see."""
        if self.authorization is not None:
            # In constant time, so that the token cannot be guessed byte by byte.
            if not hmac.compare_digest(authorization, self.authorization):
                return typed_error(
                    ErrorKind.UNAUTHORIZED,
                    "bearer token missing or wrong. Send the header "
                    "`Authorization: Bearer <content of the server's --token-file>`.",
                    is_last=True,
                )
        methods = self.routes.get(path)
        if methods is None:
            return NOT_FOUND
        return methods.get(method, NOT_ALLOWED)

    def too_large(self) -> Answer:
        """The answer to a body above the limit; the rest of it is not read."""
        return typed_error(
            ErrorKind.TOO_LARGE,
            f"the body is larger than {self.max_body_bytes} bytes. Send a shorter action.",
            is_last=True,
        )
