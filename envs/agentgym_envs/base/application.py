"""HTTP application: fixed paths, bounded bodies, access checks.

The paths of a server are fixed, so routing needs no patterns. A web framework would take more time
per request than a text game takes per step.
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
    """An HTTP request as endpoints receive it.

    Attributes:
      path: Path without the query.
      query: Query as sent, such as `b"id=3"`.
      content_type: Content-Type header in lower case; empty if the header was not sent.
      request_id: Value of REQUEST_ID_HEADER; empty if the header was not sent.
    """

    path: str
    query: bytes
    content_type: bytes
    request_id: bytes
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """JSON body and status. If `is_last` is True, the server closes the connection afterwards."""

    body: bytes
    status: int = 200
    is_last: bool = False


Endpoint = Callable[[Request], Awaitable[Answer]]
NOT_FOUND = Answer(b'{"detail":"Not Found"}', 404)
NOT_ALLOWED = Answer(b'{"detail":"Method Not Allowed"}', 405)


def typed_error(
    kind: ErrorKind, message: str, *, origin: str = "", is_last: bool = False
) -> Answer:
    """Returns the protocol's error body for `kind`, with its HTTP status."""
    body = {"error": message, "type": kind} | ({"origin": origin} if origin else {})
    return Answer(json.dumps(body).encode(), STATUS[kind], is_last)


def _forbidden(message: str) -> Answer:
    return typed_error(ErrorKind.FORBIDDEN, message, is_last=True)


def _shown(header: bytes) -> str:
    return repr(header[:100].decode("latin-1"))


@dataclasses.dataclass(frozen=True)
class Application:
    """Endpoints of a server, its limit on bodies and its access checks.

    Attributes:
      lifespan: Function that returns a context manager, entered before the first request and left
        after the last.
      max_body_bytes: Maximum length of a body, with or without a declared length.
      token: Bearer token that every request must carry; None accepts requests without one.
      host_names: Names besides `localhost` by which clients may address the server. Addresses such
        as 127.0.0.1 are always accepted. With a token, every name is accepted.
    """

    routes: Mapping[str, Mapping[str, Endpoint]]
    lifespan: Callable[[], contextlib.AbstractAsyncContextManager[None]]
    max_body_bytes: int
    token: str | None
    host_names: Set[str] = frozenset()

    def refusal(self, host: bytes, origin: bytes, authorization: bytes) -> Answer | None:
        """Returns the error for a request that is not allowed to reach an endpoint, or None if it
        is allowed.

        A web page can send requests to a server on loopback. `Origin` then names the site of the
        page. By DNS rebinding, a malicious site can make its own name resolve to this machine. Its
        pages then have the same origin as the server, but `Host` contains the name of the site. A
        token prevents this attack too, because the pages do not know the token.

        Header values except `authorization` are in lower case. A header that was not sent is empty.
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
        # constant-time comparison, so that the token cannot be guessed byte by byte
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
        """Returns the endpoint of a path and method, or an error answer if there is none."""
        methods = self.routes.get(path)
        if methods is None:
            return NOT_FOUND
        return methods.get(method, NOT_ALLOWED)

    def _is_own_name(self, host: bytes) -> bool:
        """Returns True for names of this server and for IP addresses, which no site can claim."""
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
        """Returns the error for a body above the limit; the rest of the body is not read."""
        return typed_error(
            ErrorKind.TOO_LARGE,
            f"the body is larger than {self.max_body_bytes} bytes. Send a shorter action.",
            is_last=True,
        )
