"""Transport of requests to an environment server: the interface, and its HTTP implementation.

A `requests` session chooses the connection: proxies, certificates and passwords of the environment
hold as users know them. Its calls use the session's connection pool directly, because
`Session.request` needs three times the CPU time (0.9 ms against 0.3 ms).
"""

import contextlib
import ipaddress
import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

import requests
import requests.adapters
import urllib3

from agentgym_envs.base.protocol import REQUEST_ID_HEADER
from agentgym_jax.client.errors import EnvCause, EnvError

MAX_BODY_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


class Transport(Protocol):
    """Interface that sends a request and returns its answer. Thread-safe."""

    def exchange(
        self,
        method: str,
        target: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
        request_id: str = "",
    ) -> tuple[int, bytes]:
        """Sends a request with a JSON body and returns the status and the body of the answer.

        `timeout_s` None selects the transport's default. An empty `request_id` is not sent.

        Raises:
          EnvError: No complete answer arrived (SERVER_GONE, TIMEOUT, CONNECTION, BAD_BODY).
        """

    def disconnect(self) -> None:
        """Closes idle connections. The transport can still be used afterwards."""


class HttpTransport:
    """HTTP/1.1 transport that keeps connections open. The arguments are those of `EnvClient`."""

    def __init__(
        self,
        base_url: str,
        *,
        connect_timeout_s: float,
        step_timeout_s: float,
        token: str | None,
        connections: int,
    ):
        parsed = urllib3.util.parse_url(base_url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{base_url!r} is not a server address such as http://127.0.0.1:36001")
        self._address = f"{parsed.scheme}://{parsed.netloc}"
        self._password = f"{parsed.auth}@" if parsed.auth else ""
        self._connect_timeout_s = connect_timeout_s
        self._step_timeout_s = step_timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connections = connections
        self._is_here = _is_here(parsed.host)
        self._connect()

    def exchange(
        self,
        method: str,
        target: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
        request_id: str = "",
    ) -> tuple[int, bytes]:
        """Sends a request over HTTP, as described in `Transport.exchange`."""
        where = self._address + target
        headers = self._headers | ({REQUEST_ID_HEADER: request_id} if request_id else {})
        limit_s = self._step_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + self._connect_timeout_s + limit_s
        try:
            response = self._pool.urlopen(
                method,
                self._prefix + target,
                body=None if request is None else json.dumps(request).encode(),
                headers=headers,
                retries=False,
                redirect=False,
                assert_same_host=False,  # a proxy gets whole addresses
                timeout=urllib3.Timeout(connect=self._connect_timeout_s, read=limit_s),
                preload_content=False,
            )
            if response.status == 500:
                return 500, _read_and_disconnect(response, where, deadline)
            return response.status, _read(response, where, deadline)
        except urllib3.exceptions.NewConnectionError as error:
            message = f"nobody listens at {self._address} ({error}); start its server"
            raise EnvError(EnvCause.SERVER_GONE, message) from error
        except (urllib3.exceptions.TimeoutError, TimeoutError) as error:
            message = f"{method} {where} gave no complete answer in {limit_s} s"
            raise EnvError(EnvCause.TIMEOUT, message) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            message = f"{method} {where}: the connection broke ({error!r})"
            raise EnvError(EnvCause.CONNECTION, message) from error

    def disconnect(self) -> None:
        """Closes the idle connections."""
        old = self._pool
        self._connect()
        old.close()

    def _connect(self) -> None:
        """Makes a new connection pool."""
        session = requests.Session()
        session.trust_env = not self._is_here
        whole = self._address.replace("://", f"://{self._password}")
        request = session.prepare_request(requests.Request("GET", whole))
        found = session.merge_environment_settings(self._address, {}, None, None, None)
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=self._connections)
        self._pool = adapter.get_connection_with_tls_context(
            request, found["verify"], found["proxies"], found["cert"]
        )
        # A proxy of plain HTTP gets whole addresses, which end in the path `/` here.
        self._prefix = adapter.request_url(request, found["proxies"]).removesuffix("/")
        if "Authorization" in request.headers:  # a password of the address or of ~/.netrc
            password = str(request.headers["Authorization"])
            self._headers = {"Authorization": password} | self._headers


def _is_here(host: str) -> bool:
    """Returns True for an address of this machine, which needs no proxy."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return False


def _read_and_disconnect(
    response: urllib3.response.BaseHTTPResponse, where: str, deadline: float
) -> bytes:
    """Reads the body of an answer and closes its connection.

    AgentGym's servers silently close a connection after status 500, so a step on it would be lost.
    """
    connection: Any = response.connection
    sock = None if connection is None else connection.sock
    if sock is None:
        return _read(response, where, deadline)
    connection.sock = None  # the pool takes the connection back as closed
    with contextlib.closing(sock):
        return _read(response, where, deadline)


def _read(response: urllib3.response.BaseHTTPResponse, where: str, deadline: float) -> bytes:
    """Reads the body of an answer until the deadline; the socket's time limit is per read."""
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            response.close()
            message = f"{where} answered an endless body, expected at most {MAX_BODY_BYTES} bytes"
            raise EnvError(EnvCause.BAD_BODY, message)
        if time.monotonic() > deadline:
            response.close()
            raise TimeoutError
    return bytes(body)
