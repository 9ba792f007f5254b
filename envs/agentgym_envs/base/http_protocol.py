"""HTTP/1.1 on asyncio with the parser of Node.js (httptools).

Each connection has one protocol object.

A general-purpose HTTP server with the same parser takes 1.2 to 1.8 times the CPU time per step of a
text game. Such a server also has no deadline for a request. This server supports only JSON answers
of known length on plain HTTP/1. Each connection uses a bounded number of bytes and each request has
a deadline, even if the client reads slowly.
"""

import asyncio
import collections
import dataclasses
import http
import logging
import math
import time
import urllib.parse
from typing import cast

import httptools

from agentgym_envs.base.application import Answer, Application, Endpoint, Request, typed_error
from agentgym_envs.base.protocol import REQUEST_ID_HEADER, ErrorKind

_LOGGER = logging.getLogger(__name__)

# Maximum size of a request line, headers, chunk extensions and trailers together. The body and the
# framing of its chunks are not included.
_MAX_HEAD_BYTES = 32768
_PARSED_BYTES = 4096  # bytes per parser call, which bounds the number of requests in one call
_WRITTEN_BYTES = 65536  # bytes per write, and the high-water mark of the write buffer
_STATUS_LINE = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\n%s\r\n"
_REQUEST_ID = REQUEST_ID_HEADER.encode()
_CLOSE = b"connection: close\r\n"
BUG = Answer(
    b'{"error":"the server failed on this request; its log says why","type":"simulator"}', 500, True
)


@dataclasses.dataclass(frozen=True)
class Deadlines:
    """Times in seconds after which the server ends a connection.

    Attributes:
      idle: Maximum time without a request; long enough for a model to generate its turn.
      request: Maximum time from the first byte of a request to its last one.
      answer: Maximum time in which a client must read an answer that does not fit into the buffers.
    """

    idle: float = 120.0
    request: float = 60.0
    answer: float = 60.0

    def __post_init__(self) -> None:
        """Rejects times that are not positive."""
        if min(self.idle, self.request, self.answer) <= 0:
            raise ValueError(f"deadlines must be positive, got {self}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Exchange:
    """A complete request and either the endpoint that answers it or the answer itself."""

    request: Request
    found: Endpoint | Answer
    keeps_alive: bool
    is_head: bool


class HttpProtocol(asyncio.Protocol):
    """Protocol of one connection: reads requests, answers them in order and writes the answers.

    A client can send further requests before it has received an answer. The server parses them
    after it has answered the earlier requests, and stops reading meanwhile. It writes no further
    answers while the client does not read.
    """

    def __init__(
        self, application: Application, connections: "set[HttpProtocol]", deadlines: Deadlines
    ):
        self._application = application
        self._connections = connections
        self._deadlines = deadlines
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._unparsed = bytearray()
        self._exchanges: collections.deque[_Exchange] = collections.deque()
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # a future while the write buffer is full
        self._is_paused = False  # True while the server reads no bytes
        self._is_ended = False  # True once no further request is accepted
        # applies while no request is being answered
        self._read_deadline = time.monotonic() + deadlines.idle
        self._write_deadline = math.inf
        self._reset_message()

    # Connection callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepts a connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITTEN_BYTES)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Marks the connection as lost.

        The current operation still runs to its end, because a step cannot be undone.
        """
        self._connections.discard(self)
        self._end()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parses bytes, or keeps them while earlier requests are answered."""
        if self._is_ended:
            return
        self._unparsed += data
        if self._task is None:
            self._parse()
        else:
            self._is_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Pauses writing: the write buffer is above its high-water mark."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Resumes writing: the buffer is below its low-water mark, or the connection is lost."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def close(self) -> None:
        """Closes the connection after the current answer."""
        self._end()
        if self._task is None:
            self._close_transport()

    def end_if_overdue(self, now: float) -> None:
        """Closes the connection immediately if its client missed a deadline."""
        if now > self._write_deadline or (self._task is None and now > self._read_deadline):
            self._transport.abort()

    def _end(self) -> None:
        self._is_ended = True
        self._exchanges.clear()
        self._unparsed.clear()

    def _close_transport(self) -> None:
        """Closes the connection once the client has read the answers."""
        self._write_deadline = time.monotonic() + self._deadlines.answer
        self._transport.close()

    # Requests.

    def _parse(self) -> None:
        """Feeds the parser until at least one request is complete or no bytes are left."""
        while self._unparsed and not self._exchanges:
            piece = bytes(self._unparsed[:_PARSED_BYTES])
            del self._unparsed[:_PARSED_BYTES]
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._is_ended = True  # the server still answers this request
                self._unparsed.clear()
            except httptools.HttpParserError:
                self._refuse(typed_error(ErrorKind.INVALID_REQUEST, "this is no HTTP/1 request"))
            else:
                self._check_overhead(len(piece))

    def _check_overhead(self, num_bytes: int) -> None:
        """Refuses a request with too long headers or trailers; called after each parser call."""
        if self._exchanges:  # most of the bytes belong to a complete request
            return
        self._parsed_bytes += num_bytes
        if self._parsed_bytes - self._body_bytes - self._framing_bytes > _MAX_HEAD_BYTES:
            self._refuse(typed_error(ErrorKind.TOO_LARGE, "the headers or trailers are too long"))

    def _reset_message(self) -> None:
        self._is_reading = False  # True from the start to the end of a request
        self._in_body = False
        self._url = b""
        self._content_type = b""
        self._authorization = b""
        self._host = b""
        self._origin = b""
        self._request_id = b""
        self._expects_continue = False
        self._declared_bytes = 0
        self._chunks: list[bytes] = []
        self._parsed_bytes = 0
        self._body_bytes = 0
        self._framed_bytes = 0  # bytes of the body received in complete chunks
        self._framing_bytes = 0

    # Parser callbacks.

    def on_message_begin(self) -> None:
        """Starts a new request."""
        self._reset_message()
        self._is_reading = True
        self._read_deadline = time.monotonic() + self._deadlines.request

    def on_url(self, url: bytes) -> None:
        """Appends a piece of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Stores a header that the server uses. Ignores trailers after the body."""
        if self._in_body:
            return
        name = name.lower()
        if name == b"host":
            self._host = value.lower()
        elif name == b"content-type":
            self._content_type = value.lower()
        elif name == b"content-length" and value.isdigit():
            self._declared_bytes = int(value[:20])
        elif name == b"authorization":
            self._authorization = value
        elif name == b"origin":
            self._origin = value.lower()
        elif name == _REQUEST_ID:
            self._request_id = value
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Checks access and the declared length before the body is read."""
        self._in_body = True
        if self._is_ended:
            return
        refusal = self._application.refusal(self._host, self._origin, self._authorization)
        if refusal is not None:
            self._refuse(refusal)
        elif self._declared_bytes > self._application.max_body_bytes:
            self._refuse(self._application.too_large())
        elif self._expects_continue and self._task is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Appends a piece of the body."""
        if self._is_ended:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._application.max_body_bytes:
            self._refuse(self._application.too_large())
        else:
            self._chunks.append(body)

    def on_chunk_complete(self) -> None:
        """Subtracts the framing of a chunk (hexadecimal size, two line ends) from the overhead."""
        size = self._body_bytes - self._framed_bytes
        self._framing_bytes += len(f"{size:x}") + 4
        self._framed_bytes = self._body_bytes

    def on_message_complete(self) -> None:
        """Queues a complete request for its endpoint."""
        self._is_reading = False
        if self._is_ended:
            return
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
            path, url.query or b"", self._content_type, self._request_id, b"".join(self._chunks)
        )
        self._chunks.clear()
        found = self._application.find(method, path)
        keeps_alive = self._parser.should_keep_alive()
        self._add(_Exchange(request, found, keeps_alive, method == "HEAD"))

    def _refuse(self, answer: Answer) -> None:
        """Queues an error after the earlier answers and stops reading from this connection."""
        if self._is_ended:
            return
        self._is_ended = True
        self._chunks.clear()
        self._unparsed.clear()
        request = Request("", b"", b"", b"", b"")
        self._add(_Exchange(request, answer, keeps_alive=False, is_head=False))

    # Answers.

    def _add(self, exchange: _Exchange) -> None:
        self._exchanges.append(exchange)
        if self._task is None:
            self._task = self._loop.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        """Answers the received requests in order."""
        try:
            while self._exchanges:
                exchange = self._exchanges.popleft()
                await self._write(await self._answer(exchange), exchange)
                if self._unparsed and not self._exchanges:
                    # lets other connections run before the next pipelined request
                    await asyncio.sleep(0)
                    self._parse()
        finally:
            self._task = None
        if self._is_ended:
            self._close_transport()
            return
        limit = self._deadlines.request if self._is_reading else self._deadlines.idle
        self._read_deadline = time.monotonic() + limit
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    async def _answer(self, exchange: _Exchange) -> Answer:
        if isinstance(exchange.found, Answer):
            return exchange.found
        try:
            return await exchange.found(exchange.request)
        except Exception:
            # The client gets an answer even if an endpoint has a bug, which is logged.
            _LOGGER.exception("no answer to %s", exchange.request.path)
            return BUG

    async def _write(self, answer: Answer, exchange: _Exchange) -> None:
        """Writes an answer as fast as the client reads; returns when the write buffer has space."""
        if answer.is_last or not exchange.keeps_alive:
            self._end()
        is_last = self._is_ended and not self._exchanges
        head = _STATUS_LINE[answer.status] + _HEADERS % (
            len(answer.body),
            _CLOSE if is_last else b"",
        )
        body = b"" if exchange.is_head else answer.body
        # The head and the first part of the body are one write, because a second write would wait
        # for the acknowledgement of the first.
        piece = head + body[:_WRITTEN_BYTES]
        end = _WRITTEN_BYTES
        while not self._transport.is_closing():
            self._transport.write(piece)
            if self._drained is not None:
                if self._write_deadline == math.inf:
                    self._write_deadline = time.monotonic() + self._deadlines.answer
                await self._drained
            piece = body[end : end + _WRITTEN_BYTES]
            end += _WRITTEN_BYTES
            if not piece:
                break
        self._write_deadline = math.inf


async def end_overdue(connections: set[HttpProtocol], deadlines: Deadlines) -> None:
    """Closes connections whose clients missed a deadline. Runs until cancelled.

    A connection is closed at most a quarter of the shortest deadline late.
    """
    period_seconds = min(deadlines.idle, deadlines.request, deadlines.answer) / 4
    while True:
        await asyncio.sleep(period_seconds)
        now = time.monotonic()
        for connection in list(connections):
            connection.end_if_overdue(now)
