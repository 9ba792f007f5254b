"""From a request to an answer: fixed paths, bounded bodies, who may ask.

A web framework would spend more time on a step than a text game does, and the paths of a
server are known and need no patterns.
"""

import contextlib
import dataclasses
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, Set

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


def _forbidden(message: str) -> Answer:
    return typed_error(ErrorKind.FORBIDDEN, message, is_last=True)


def _shown(header: bytes) -> str:
    return repr(header[:100].decode("latin-1"))


@dataclasses.dataclass(frozen=True)
class Application:
    """Endpoints of a server and the conditions for using them.

    Attributes:
      routes: path -> method -> endpoint.
      lifespan: entered before the first request, left after the last.
      max_body_bytes: longest body that is read, whether or not its length is declared.
      token: Bearer token that every request must carry; None accepts requests without one.
      host_names: Names besides `localhost` by which clients may address the server. Addresses
        such as 127.0.0.1 are always accepted, and with a token any name is.
    """

    routes: Mapping[str, Mapping[str, Endpoint]]
    lifespan: Callable[[], contextlib.AbstractAsyncContextManager[None]]
    max_body_bytes: int
    token: str | None
    host_names: Set[str] = frozenset()

    def refusal(self, host: bytes, origin: bytes, authorization: bytes) -> Answer | None:
        """Answer to a request that no endpoint may receive; None admits the request.

        A page in a browser may send requests to a server on loopback. The browser names the site
        of the page in `Origin`. A site that resolves its own name to this machine is its own
        origin; `Host` then has that name. A token protects from such a site as well, because its
        pages do not know the token.

        Args:
          host: Value of the header, lower case; empty if it was not sent.
          origin: Value of the header, lower case; empty if it was not sent.
          authorization: Value of the header; empty if it was not sent.
        """
        if origin and origin.partition(b"://")[2] != host:
            return _forbidden(
                f"the request comes from a page of {_shown(origin)}. Only pages of this server "
                "may use it."
            )
        if self.token is None:
            if host and not self._is_own_name(host):
                return _forbidden(
                    f"the request addresses this server as {_shown(host)}. Use localhost or an IP "
                    "address, or start the server with --allow-host and this name."
                )
            return None
        scheme, _, credentials = authorization.partition(b" ")
        # In constant time, so that the token cannot be guessed byte by byte.
        is_right = hmac.compare_digest(credentials.strip(), self.token.encode())
        if is_right and scheme.lower() == b"bearer":
            return None
        return typed_error(
            ErrorKind.UNAUTHORIZED,
            "bearer token missing or wrong. Send the header "
            "`Authorization: Bearer <content of the server's --token-file>`.",
            is_last=True,
        )

    def find(self, method: str, path: str) -> Endpoint | Answer:
        """Returns the endpoint of a path, or the answer if there is none."""
        methods = self.routes.get(path)
        if methods is None:
            return NOT_FOUND
        return methods.get(method, NOT_ALLOWED)

    def _is_own_name(self, host: bytes) -> bool:
        """Returns True for names of this server and for addresses, which no site can claim."""
        name = host.decode("latin-1")
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        else:
            name = name.partition(":")[0]
        if name == "localhost" or name in self.host_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def too_large(self) -> Answer:
        """The answer to a body above the limit; the rest of it is not read."""
        return typed_error(
            ErrorKind.TOO_LARGE,
            f"the body is larger than {self.max_body_bytes} bytes. Send a shorter action.",
            is_last=True,
        )
