"""HTTP server for all tests that need a peer: it answers, records requests and drops connections."""

import contextlib
import dataclasses
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

DROP = (None, b"")  # answer for which the server closes the connection without a reply


@dataclasses.dataclass
class Request:
    """One request as the server received it.

    Attributes:
      method: HTTP method.
      path: Path with the query.
      headers: Header fields; the case of their names does not matter.
      body: Content; empty if there is none.
      hangs_up: True to close the connection after the reply without announcing this; set by the
          answer function.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    hangs_up: bool = False

    def json(self) -> Any:
        """Returns the content parsed as JSON, or None if there is none."""
        return json.loads(self.body) if self.body else None


# Type of a function that returns status, content and, optionally, header fields. Bytes are sent
# unchanged, any other content as JSON. For the status None, the server closes the connection.
Answer = Callable[[Request], tuple]


class FakeServer(http.server.ThreadingHTTPServer):
    """A server on loopback whose replies are returned by a function.

    Attributes:
      requests: All requests in order of arrival, recorded before they are answered.
      connections: Sockets of all connections so far.
      url: Address of the server.
      port: Port of the server.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Answer, port: int = 0, *, keeps_alive: bool = True):
        self.answer = answer
        self.protocol = "HTTP/1.1" if keeps_alive else "HTTP/1.0"
        self.requests: list[Request] = []
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), _Handler)
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> "FakeServer":
        """Starts serving in a thread; returns the server."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Closes the listener and all open connections."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def get_request(self):
        """Accepts a connection and stores it for `stop`."""
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, request, client_address):
        """Ignores the error, because the client may have closed the connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    wbufsize = -1  # head and body are sent in one packet

    def setup(self):
        self.protocol_version = self.server.protocol
        super().setup()

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, self.headers, body)
        self.server.requests.append(request)
        status, content, *headers = self.server.answer(request)
        if status is None:
            self.close_connection = True
            return
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers[0] if headers else {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        if request.hangs_up:
            self.close_connection = True

    do_POST = do_DELETE = do_GET

    def log_message(self, format, *arguments):
        pass


@contextlib.contextmanager
def serving(answer: Answer, port: int = 0, *, keeps_alive: bool = True) -> Iterator[FakeServer]:
    """Runs a server during a `with` block, then closes its listener and all open connections.

    Args:
      answer: Function of a request that returns status, content and, optionally, header fields.
      port: Port to listen on; 0 for any free port.
      keeps_alive: True for HTTP/1.1, whose connections serve many requests; False for HTTP/1.0.
    """
    server = FakeServer(answer, port, keeps_alive=keeps_alive).start()
    try:
        yield server
    finally:
        server.stop()
