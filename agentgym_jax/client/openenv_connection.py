"""WebSocket connection to a server in OpenEnv's protocol. A connection is a session."""

import dataclasses
import json
import socket
from collections.abc import Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import connect

from agentgym_envs.base.protocol import ErrorKind, read_json
from agentgym_jax.client import answers
from agentgym_jax.client.answers import Answer
from agentgym_jax.client.errors import EnvCause, EnvError, from_status
from agentgym_jax.client.transport import MAX_BODY_BYTES

VALIDATION_ERROR = "VALIDATION_ERROR"

_CLOSE_TIMEOUT_S = 2.0
_CAUSES = {"CAPACITY_REACHED": EnvCause.CAPACITY, "SESSION_ERROR": EnvCause.SESSION_LOST}
_PERMANENT_CODES = ("INVALID_JSON", "UNKNOWN_TYPE", VALIDATION_ERROR)
# WebSocket close codes for refused messages of the server
_REFUSED_DATA = (1002, 1003, 1007, 1009)


class ServerError(EnvError):
    """An error message of the server; `code` is OpenEnv's code, and `text` the server's text."""

    def __init__(self, where: str, code: str, text: str, kind: ErrorKind | None, origin: str = ""):
        cause = _CAUSES[code] if code in _CAUSES else EnvCause.ERROR_BODY
        is_retryable = code not in _PERMANENT_CODES
        if kind is not None:
            known = from_status(500, kind, text, origin)
            cause, is_retryable = known.cause, known.retryable_from_reset
        message = text if origin else f"{where} answered {code}: {text}"
        super().__init__(
            cause, message, retryable_from_reset=is_retryable, kind=kind, origin=origin
        )
        self.code = code
        self.text = text


class Connection:
    """Connection with one request at a time. Not thread-safe, except for `close`.

    Raises:
      EnvError: The server cannot be reached, or it refuses the connection.
    """

    def __init__(self, url: str, *, connect_timeout_s: float, token: str | None):
        self._where = url
        self._is_broken = False
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            connection = connect(
                url,
                additional_headers=headers,
                open_timeout=connect_timeout_s,
                ping_interval=None,  # every request has a time limit; pings need a further thread
                close_timeout=_CLOSE_TIMEOUT_S,
                max_size=MAX_BODY_BYTES,
                compression=None,
                proxy=None,
            )
        except InvalidStatus as error:
            response = error.response
            answers.read_json(url, response.status_code, bytes(response.body or b""))
            raise EnvError(EnvCause.BAD_BODY, f"{url} opened no WebSocket ({error})") from error
        except (ConnectionRefusedError, socket.gaierror) as error:
            message = f"nobody listens at {url} ({error}); start its server"
            raise EnvError(EnvCause.SERVER_GONE, message) from error
        except TimeoutError as error:
            message = f"{url} opened no WebSocket in {connect_timeout_s} s"
            raise EnvError(EnvCause.TIMEOUT, message) from error
        except (WebSocketException, OSError) as error:
            message = f"{url} opened no WebSocket ({error!r})"
            raise EnvError(EnvCause.CONNECTION, message) from error
        self._websocket = connection.__enter__()  # `close` leaves it

    def ask(self, kind: str, data: Mapping[str, Any], timeout_s: float) -> Answer:
        """Sends a request and returns the `data` of the observation with which it is answered.

        Raises:
          ServerError: The server answered with an error; the connection can be used again.
          EnvError: There was no usable answer; the connection cannot be used again.
        """
        if self._is_broken:
            raise EnvError(EnvCause.SESSION_LOST, f"{self._where}: an earlier request failed")
        try:
            self._check_silence()
            try:
                self._websocket.send(json.dumps({"type": kind, "data": data}))
            except ConnectionClosed:
                pass  # the server may have said why, such as that it is full
            return self._read(self._websocket.recv(timeout_s))
        except ServerError:
            raise
        except EnvError:
            self._is_broken = True
            raise
        except TimeoutError as error:
            self._is_broken = True  # a late answer would be taken for that of another request
            message = f"{kind} at {self._where} gave no complete answer in {timeout_s} s"
            raise EnvError(EnvCause.TIMEOUT, message) from error
        except ConnectionClosed as error:
            self._is_broken = True
            is_refused = error.sent is not None and error.sent.code in _REFUSED_DATA
            is_refused = is_refused and not error.rcvd_then_sent
            cause = EnvCause.BAD_BODY if is_refused else EnvCause.CONNECTION
            raise EnvError(
                cause, f"{kind} at {self._where}: the connection ended ({error})"
            ) from error

    def close(self) -> None:
        """Closes the connection, and with it the session; waits some seconds for the server."""
        self._is_broken = True
        self._websocket.close()

    def _check_silence(self) -> None:
        """Raises EnvError if the server sent an unexpected message, such as an error."""
        try:
            unasked = self._websocket.recv(0)
        except (TimeoutError, ConnectionClosed):
            return
        raise self._read(unasked).unfit("an observation without a request", "an answer per request")

    def _read(self, raw: str | bytes) -> Answer:
        """Returns the data of an observation message."""
        try:
            message = Answer(self._where, read_json(raw))
        except ValueError as error:
            raise Answer(self._where, None).unfit(f"{raw[:200]!r}", "JSON") from error
        kind = message.field("type", str)
        data = dataclasses.replace(message, body=message.field("data", dict))
        if kind == "error":
            raise _server_error(data)
        if kind != "observation":
            raise message.unfit(f"a message of type {kind!r:.100}", "an observation")
        return data


def _server_error(data: Answer) -> ServerError:
    """Returns the error in an error message. Our servers also name its kind."""
    code, text = data.field("code", str), data.field("message", str)
    if code == VALIDATION_ERROR and "errors" in data.body:
        text = f"{text}: {_problems(data)}"
    has_kind = "kind" in data.body and data.body["kind"] in list(ErrorKind)
    kind = ErrorKind(data.body["kind"]) if has_kind else None
    origin = data.field("origin", str) if "origin" in data.body else ""
    return ServerError(data.where, code, text[:1000], kind, origin)


def _problems(data: Answer) -> str:
    """Returns the problems of a request, which servers list in pydantic's form."""
    found = []
    for problem in data.field("errors", list):
        entry = dataclasses.replace(data, body=problem)
        place = ".".join(map(str, entry.field("loc", list)))
        found.append(f"{place}: {entry.field('msg', str)}")
    return "; ".join(found)
