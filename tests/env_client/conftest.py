"""Small real HTTP servers that answer, and misbehave, as a test says."""

import contextlib
import http.server
import json
import socket
import threading
import time

import pytest

DROP = object()  # an answer: close the connection without a word


class CountingWorld:
    """A textcraft-like world over HTTP: a task remembers its actions. Faults are set by a test.

    `faults` maps a path to a list of answers that are given, one each, before the world's own:
    `(status, body)` with body bytes or JSON, `DROP`, or a number of seconds to wait first.
    """

    def __init__(self):
        self.faults = {}
        self.calls = []  # (path, body), in the order of arrival
        self.sessions = {}  # number -> [data_idx, actions so far]
        self.capacity = 1000
        self.first_number = 0
        self.created = 0
        self.lock = threading.Lock()

    def count(self, path):
        with self.lock:
            return sum(called == path for called, _ in self.calls)

    def answer(self, path, body):
        with self.lock:
            self.calls.append((path, body))
            fault = self.faults[path].pop(0) if self.faults.get(path) else None
        if isinstance(fault, (int, float)):
            time.sleep(fault)
        elif fault is not None:
            return fault
        with self.lock:
            return self.own_answer(path, body)

    def own_answer(self, path, body):
        if path == "/create":
            if len(self.sessions) >= self.capacity:
                return 503, {"error": "full", "type": "capacity"}
            number = self.first_number + self.created
            self.created += 1
            self.sessions[number] = [None, []]
            return 200, {"id": number, "observation": "", "done": False, "reward": 0}
        if path in ("/reset", "/step", "/close") and body["id"] not in self.sessions:
            return 404, {"error": f"no session {body['id']}", "type": "unknown_session"}
        if path == "/reset":
            self.sessions[body["id"]] = [body["data_idx"], []]
            text = f"task {body['data_idx']}"
            return 200, {"id": body["id"], "observation": text, "done": False, "reward": 0}
        if path == "/step":
            data_idx, actions = self.sessions[body["id"]]
            actions.append(body["action"])
            done = body["action"] == "win"
            text = f"task {data_idx}: {','.join(actions)}"
            return 200, {"observation": text, "reward": int(done), "done": done}
        if path == "/close":
            del self.sessions[body["id"]]
            return 200, True
        return 404, {"detail": "Not Found"}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.headers_seen.append(dict(self.headers))
        answer = self.server.world.answer(self.path, json.loads(data) if data else None)
        if answer is DROP:
            self.close_connection = True
            return
        status, body = answer
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have given up
            self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *arguments):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, world):
        self.world = world
        self.headers_seen = []
        self.open_sockets = []
        super().__init__(address, _Handler)

    def get_request(self):
        request, address = super().get_request()
        self.open_sockets.append(request)
        return request, address

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def serving(world, port=0):
    """Serves a world on a port; on leaving, listener and open connections are closed."""
    server = _Server(("127.0.0.1", port), world)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        for open_socket in server.open_sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def world():
    return CountingWorld()


@pytest.fixture
def server(world):
    with serving(world) as running:
        yield running


@pytest.fixture
def serve():
    """`serve(world, port=0)`: a context manager that serves a world."""
    return serving


@pytest.fixture
def drop():
    """An answer that closes the connection without a word."""
    return DROP


@pytest.fixture
def free_port():
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
