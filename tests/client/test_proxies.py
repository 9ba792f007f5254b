"""Proxies and passwords of the environment, which hold for servers on other machines only."""

import base64
import contextlib
import http.server
import threading

import pytest

from agentgym_jax.client.transport import HttpTransport
from tests.waiting import PATIENCE_S


@contextlib.contextmanager
def answering():
    """Yields the port of an HTTP server and the list of its requests, as path and headers."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], seen
        server.shutdown()


def get(address):
    transport = HttpTransport(
        address,
        connect_timeout_s=PATIENCE_S,
        step_timeout_s=PATIENCE_S,
        token=None,
        connections=1,
    )
    try:
        return transport.exchange("GET", "/health?id=1", None, None)
    finally:
        transport.disconnect()


def basic(password):
    return f"Basic {base64.b64encode(password.encode()).decode()}"


def test_a_proxy_of_the_environment_gets_whole_addresses(monkeypatch):
    with answering() as (port, seen):
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        assert get("http://environments.example:36001") == (200, b"{}")
    ((path, headers),) = seen
    assert path == "http://environments.example:36001/health?id=1"
    assert headers["Host"] == "environments.example:36001"
    assert headers["Proxy-Authorization"] == basic("me:secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_reached_without_a_proxy(monkeypatch, host):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering() as (port, seen):
        assert get(f"http://{host}:{port}") == (200, b"{}")
    assert [path for path, _ in seen] == ["/health?id=1"]


def test_a_password_of_the_address_is_sent(monkeypatch):
    with answering() as (port, seen):
        get(f"http://me:secret@127.0.0.1:{port}")
    assert seen[0][1]["Authorization"] == basic("me:secret")
