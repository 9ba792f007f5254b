"""Clients that leave, do not read, or stay open: they free everything and disturb nobody."""

import json
import os
import socket
import struct
import threading
import time

import pytest

from tests.serving.parts import MODEL, FakeBackend, serving, user
from tests.waiting import PATIENCE_S, until

CHAT = "/v1/chat/completions"
ENDLESS = 10_000_000  # characters of a text that no socket buffer holds


def request(route=CHAT, **fields):
    """Returns the bytes of a request."""
    messages = {} if "input" in fields else {"messages": [user("go")]}
    body = json.dumps({"model": MODEL} | messages | fields).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def drop(connection):
    """Closes a connection; the other side sees a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def tasks(server):
    return server.web.get("/tasks").json()


def leave(server, cycle):
    """Sends a request and leaves: while it is sent, at once, or after the first bytes."""
    options = {"max_tokens": 200, "stream": cycle % 2 == 0, "n": 1 + cycle % 3, "stop": ["\x00"]}
    data = request(**options)
    connection = server.connect()
    way = cycle % 5
    connection.sendall(data[: len(data) // 2] if way == 0 else data)
    if way == 1 and options["stream"]:
        connection.recv(100)
    if way == 2:
        time.sleep(0.003)
    drop(connection) if cycle % 4 else connection.close()


def leave_often(served, cycles):
    served.client().chat.completions.create(model=MODEL, messages=[user("hi")], max_tokens=2)
    assert tasks(served) < 10
    before = open_files(), threading.active_count(), tasks(served)
    for cycle in range(cycles):
        leave(served, cycle)
    engine = served.engine
    until(lambda: engine.num_active == engine.num_waiting == 0, "requests are left")
    until(lambda: tasks(served) <= before[2], "tasks are left")
    until(lambda: open_files() <= before[0], "files are left")
    assert threading.active_count() <= before[1]
    answer = served.client().chat.completions.create(
        model=MODEL, messages=[user("hi")], max_tokens=2
    )
    assert answer.usage.completion_tokens <= 2


def test_lost_clients_leave_nothing_behind(served):
    leave_often(served, 60)  # each way to leave with each kind of request


@pytest.mark.slow
def test_hundreds_of_lost_clients_leave_nothing_behind(served):
    leave_often(served, 500)


LOST = [(CHAT, fields) for fields in ({}, {"stream": True}, {"n": 3}, {"n": 3, "stream": True})]
LOST += [
    (route, {"stream": stream} | fields)
    for route, fields in (("/v1/messages", {"max_tokens": 9}), ("/v1/responses", {"input": "go"}))
    for stream in (False, True)
]


@pytest.mark.parametrize(("route", "fields"), LOST)
@pytest.mark.parametrize("reads", [True, False])
def test_the_requests_of_a_lost_client_are_cancelled(fake, route, fields, reads):
    fake.backend.text = None
    count = fields.get("n", 1)
    connection = fake.connect()
    connection.sendall(request(route, **fields))
    until(lambda: len(fake.backend.open) == count, "the requests did not start")
    if reads and fields.get("stream"):
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    drop(connection)
    until(lambda: not fake.backend.open, "the requests are not cancelled")
    assert fake.backend.cancelled == count


def test_a_pipelined_client_is_answered_in_order(served):
    with served.connect() as connection:
        connection.sendall(request(max_tokens=1) + request(max_tokens=0))
        data = b""
        while data.count(b"HTTP/1.1") < 2:
            data += connection.recv(10_000)
    assert data.index(b"HTTP/1.1 200") < data.index(b"HTTP/1.1 400")


def read_slowly(server, count):
    """Returns connections with streams that are much longer than what they read."""
    server.backend.text = "x" * ENDLESS
    connections = []
    for _ in range(count):
        connection = server.connect()
        connection.sendall(request(stream=True))
        connections.append(connection)
    for connection in connections:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    return connections


def test_clients_that_do_not_read_block_nobody(fake):
    connections = read_slowly(fake, 3)
    fake.backend.text = "short"
    for _ in range(5):
        answer = fake.client().chat.completions.create(model=MODEL, messages=[user("hi")])
        assert answer.choices[0].message.content == "short"
    for connection in connections:
        drop(connection)
    until(lambda: tasks(fake) < 10, "tasks of slow readers are left")


@pytest.mark.parametrize("kind", ["open", "unread", "idle", "half"])
def test_a_server_with_open_connections_stops_in_seconds(tokenizer, kind):
    threads = threading.active_count()
    backend = FakeBackend(tokenizer, text=None)
    with serving(backend) as server:
        if kind == "open":
            connections = [server.connect() for _ in range(4)]
            for i, connection in enumerate(connections):
                connection.sendall(request(stream=i % 2 == 0))
            until(lambda: len(backend.open) == 4, "the requests did not start")
        elif kind == "unread":
            connections = read_slowly(server, 2)
        else:
            connections = [server.connect() for _ in range(2)]
            for connection in connections:
                connection.sendall(b"" if kind == "idle" else request()[:-3])
        started = time.monotonic()
        server.http.stop()
        assert time.monotonic() - started < 120
    assert not backend.open  # all requests are cancelled
    if kind == "open":  # the server may not have read a half request
        assert connections[1].recv(1000).startswith(b"HTTP/1.1 503")
    until(lambda: threading.active_count() <= threads, "threads are left")
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(range(256)),
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
    ids=["tls", "version", "negative", "two lengths", "chunk", "path", "header"],
)
def test_broken_http_is_refused(served, data):
    with served.connect() as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        except OSError:  # the server has reset the connection
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 5")
    assert served.web.get("/health").status_code == 200
