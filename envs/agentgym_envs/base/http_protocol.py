"""HTTP/1.1 on asyncio with the parser of Node.js (httptools): one object per connection.

General servers cost three times as much per request as a text game needs for its step. What is
left out here: everything but JSON answers of known length on plain HTTP/1.
"""

import asyncio
import http
import logging
import time
import urllib.parse
from typing import cast

import httptools

from agentgym_envs.base.application import Answer, Application, Endpoint, Request, typed_error
from agentgym_envs.base.protocol import TURN_HEADER, ErrorKind

_LOGGER = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 32768  # of a request's line and headers
_STATUS_LINE = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\n%s\r\n"
_TURN = TURN_HEADER.encode()
_CLOSE = b"connection: close\r\n"
_BUG = Answer(
    b'{"error":"the server failed on this request; its log says why","type":"simulator"}', 500, True
)


class HttpProtocol(asyncio.Protocol):
    """Reads requests, has them answered one after the other, writes the answers.

    Args:
      application: answers.
      connections: holds this object while its connection is open.
    """

    def __init__(self, application: Application, connections: "set[HttpProtocol]"):
        self._application = application
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: list[tuple[Request, Endpoint | Answer, bool, bool]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False  # nothing more is read
        self._completed = 0  # requests read
        self.last_active = time.monotonic()

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self.on_message_begin()

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone. What was begun is finished: a step cannot be taken back."""
        self._connections.discard(self)
        self._is_ended = True
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.last_active = time.monotonic()
        if self._is_ended:
            return
        before = self._completed
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._refuse(typed_error(ErrorKind.INVALID_REQUEST, "this is no HTTP/1 request"))
            return
        if self._in_body or self._completed > before:
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MAX_HEAD_BYTES:
            self._refuse(typed_error(ErrorKind.TOO_LARGE, "the headers are too long"))

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._task is not None

    def close(self) -> None:
        """Ends the connection after the answer under way."""
        self._is_ended = True
        self._waiting.clear()
        if self._task is None:
            self._transport.close()

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._content_type = b""
        self._authorization = b""
        self._turn = b""
        self._expects_continue = False
        self._declared = 0
        self._chunks: list[bytes] = []
        self._size = 0
        self._head_bytes = 0
        self._in_body = False

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.lower()
        elif name == b"authorization":
            self._authorization = value
        elif name == _TURN:
            self._turn = value
        elif name == b"content-length" and value.isdigit():
            self._declared = int(value[:20])
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """The body follows, if there is one."""
        self._in_body = True
        if self._declared > self._application.max_body_bytes:
            self._refuse(self._application.too_large())
        elif self._expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._size += len(body)
        if self._size > self._application.max_body_bytes:
            self._chunks.clear()
            self._refuse(self._application.too_large())
        elif not self._is_ended:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._is_ended:
            return
        self._in_body = False
        self._completed += 1
        method = self._parser.get_method().decode("latin-1")
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            self._refuse(typed_error(ErrorKind.INVALID_REQUEST, "the target is no URL"))
            return
        path = (url.path or b"/").decode("latin-1")
        if "%" in path:
            path = urllib.parse.unquote(path)
        request = Request(
            path, url.query or b"", self._content_type, self._turn, b"".join(self._chunks)
        )
        found = self._application.find(method, path, self._authorization)
        self._waiting.append((request, found, self._parser.should_keep_alive(), method == "HEAD"))
        if self._task is None:
            self._task = self._loop.create_task(self._answer_all())
        else:  # the client sends ahead of its answers: let it wait
            self._transport.pause_reading()

    # Answers.

    async def _answer_all(self) -> None:
        """Answers what has come, in its order."""
        try:
            while self._waiting:
                request, found, keeps_alive, is_head = self._waiting.pop(0)
                if isinstance(found, Answer):
                    answer = found
                else:
                    try:
                        answer = await found(request)
                    except Exception:
                        # The loop that must answer whatever happens; a bug of ours is logged.
                        _LOGGER.exception("no answer to %s", request.path)
                        answer = _BUG
                self._write(answer, keeps_alive, is_head)
        finally:
            self._task = None
        if self._is_ended:
            self._transport.close()
        else:
            self._transport.resume_reading()

    def _write(self, answer: Answer, keeps_alive: bool, is_head: bool = False) -> None:
        if self._transport.is_closing():
            return
        self.last_active = time.monotonic()
        is_last = answer.is_last or not keeps_alive or self._is_ended
        head = _STATUS_LINE[answer.status] + _HEADERS % (
            len(answer.body),
            _CLOSE if is_last else b"",
        )
        # One write: a second one would wait for the client's acknowledgement of the first.
        self._transport.write(head if is_head else head + answer.body)
        if is_last:
            self._is_ended = True
            self._waiting.clear()

    def _refuse(self, answer: Answer) -> None:
        """Answers at once and reads no more: where the next request begins cannot be known."""
        if self._is_ended:
            return
        self._is_ended = True
        if self._task is None:
            self._write(answer, keeps_alive=False)
            self._transport.close()
        # Else an answer is under way; the connection closes after it.


async def close_idle(connections: set[HttpProtocol], idle_seconds: float) -> None:
    """Closes connections on which nothing happened for so long, again and again."""
    while True:
        await asyncio.sleep(idle_seconds / 4)
        now = time.monotonic()
        for connection in list(connections):
            if not connection.is_busy and now - connection.last_active > idle_seconds:
                connection.close()
