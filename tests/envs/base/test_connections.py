"""Connections of the HTTP server: memory, deadlines and requests from web pages."""

import asyncio
import contextlib
import os
import select
import socket

import pytest

from agentgym_envs.base.application import Answer, Application
from agentgym_envs.base.http_protocol import Deadlines
from agentgym_envs.base.protocol import STATUS, ErrorKind
from tests.envs.serving import DOOR, serving, serving_application
from tests.waiting import PATIENCE_S, until

LARGE = b'"' + b"x" * (32 << 20) + b'"'  # larger than the buffers of two sockets
MIDDLE = b'"' + bytes(range(97, 123)) * 40_000 + b'"'


class Counted:
    """An application with answers of several sizes; it counts its large answers.

    Args:
      max_body_bytes: Maximum number of bytes of a request body.
    """

    def __init__(self, max_body_bytes=4096):
        self.large = 0

        @contextlib.asynccontextmanager
        async def lifespan():
            yield

        self.application = Application(
            {
                "/large": {"GET": self._large},
                "/middle": {"GET": self._middle},
                "/echo": {"GET": self._query, "POST": self._body},
                "/slow": {"GET": self._slow},
            },
            lifespan,
            max_body_bytes,
            None,
        )

    async def _large(self, request):
        self.large += 1
        return Answer(LARGE)

    async def _middle(self, request):
        return Answer(MIDDLE)

    async def _query(self, request):
        return Answer(request.query)

    async def _body(self, request):
        return Answer(request.body)

    async def _slow(self, request):
        await asyncio.sleep(0.3)
        return Answer(b"1")


@contextlib.contextmanager
def connected(client):
    """Yields a socket that is connected to the server of a client."""
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def heard(connection):
    """Returns all bytes that arrive until the server closes the connection."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 20):
            received += more
    return bytes(received)


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_never_reads_uses_little_server_memory():
    counted = Counted()
    with serving_application(counted.application) as client, connected(client) as connection:
        client.get("/echo?1")
        before = resident_bytes()
        connection.sendall(b"GET /large HTTP/1.1\r\n\r\n" * 16)
        while not counted.large:
            client.get("/echo?1")
        for _ in range(10):
            client.get("/echo?1")
        assert counted.large == 1  # the next answer is only computed once this one was read
        assert resident_bytes() - before < len(LARGE)


def test_large_answers_reach_a_client_that_reads_late():
    counted = Counted()
    with serving_application(counted.application) as client, connected(client) as connection:
        request = b"GET /middle HTTP/1.1\r\n"
        connection.sendall((request + b"\r\n") * 7 + request + b"connection: close\r\n\r\n")
        client.get("/echo?1")
        received = heard(connection)
    heads = received.split(MIDDLE)
    assert len(heads) == 9
    assert all(head.startswith(b"HTTP/1.1 200 OK\r\n") for head in heads[:-1])
    assert heads[-1] == b""


def test_thousands_of_pipelined_requests_are_answered_in_order():
    counted = Counted()
    with serving_application(counted.application) as client, connected(client) as connection:
        requests = b"".join(b"GET /echo?%04d HTTP/1.1\r\n\r\n" % i for i in range(4000))
        connection.sendall(requests + b"GET /echo HTTP/1.1\r\nconnection: close\r\n\r\n")
        bodies = [
            answer.split(b"\r\n\r\n")[1] for answer in heard(connection).split(b"HTTP/1.1")[1:]
        ]
    assert [body.strip() for body in bodies] == [b"%04d" % i for i in range(4000)] + [b""]


def test_a_client_that_does_not_read_its_answer_is_disconnected():
    counted = Counted()
    deadlines = Deadlines(answer=0.05)
    with (
        serving_application(counted.application, deadlines=deadlines) as client,
        connected(client) as connection,
    ):
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            # The server leaves requests unread, so its kernel resets the connection. An orderly
            # close would only be seen after the bytes that this test does not read.
            while True:
                connection.send(b"GET /large HTTP/1.1\r\n\r\n" * 1000)
        poll = select.poll()
        poll.register(connection, 0)  # report errors only
        assert poll.poll(PATIENCE_S * 1000)
        assert counted.large == 1


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"", b"\r\n"),
        (b"GET /echo HTTP/1.1\r\n", b"x: 1\r\n"),
        (b"POST /echo HTTP/1.1\r\ncontent-length: 4000\r\n\r\n", b"x"),
        (b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: 1\r\n"),
    ],
    ids=["nothing", "headers", "body", "chunks", "trailers"],
)
def test_a_request_that_arrives_too_slowly_is_ended(begin, drop):
    counted = Counted()
    deadlines = Deadlines(idle=0.2, request=0.2)
    with (
        serving_application(counted.application, deadlines=deadlines) as client,
        connected(client) as connection,
    ):
        connection.sendall(begin)
        connection.settimeout(0.01)  # reached
        received = None
        for _ in range(3000):
            try:
                connection.sendall(drop)
                received = connection.recv(1000)
                break
            except TimeoutError:
                continue
            except OSError:
                received = b""
                break
        assert received == b""


def answer_of(client, request):
    """Returns True if a request is answered; False if it was too late for a short deadline."""
    with contextlib.suppress(OSError), connected(client) as connection:
        connection.sendall(request)
        return heard(connection).endswith(b"\r\n\r\n1")
    return False


def test_an_idle_connection_is_closed():
    counted = Counted()
    deadlines = Deadlines(idle=0.1)
    with serving_application(counted.application, deadlines=deadlines) as client:
        with connected(client) as connection:
            assert connection.recv(1) == b""
        until(lambda: answer_of(client, b"GET /echo?1 HTTP/1.1\r\n\r\n"))


def test_deadlines_do_not_limit_the_time_to_compute_an_answer():
    counted = Counted()
    deadlines = Deadlines(idle=0.02, request=0.02, answer=0.02)
    with serving_application(counted.application, deadlines=deadlines) as client:
        until(lambda: answer_of(client, b"GET /slow HTTP/1.1\r\nconnection: close\r\n\r\n"))


@pytest.mark.parametrize("wrong", [{"idle": 0}, {"request": -1}, {"answer": 0}])
def test_a_deadline_must_be_positive(wrong):
    with pytest.raises(ValueError, match="deadlines must be positive"):
        Deadlines(**wrong)


_CHUNKED = b"POST /echo HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n" * 20_000,
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n" + b"x: y\r\n" * 7000 + b"\r\n",
        _CHUNKED + b"1;" + b"x" * 40_000 + b"\r\ny\r\n0\r\n\r\n",
        _CHUNKED + (b"1;" + b"x" * 30 + b"\r\ny\r\n") * 2000 + b"0\r\n\r\n",
        _CHUNKED + b"0\r\n" + b"x: y\r\n" * 7000 + b"\r\n",
        _CHUNKED + b"0\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
    ],
    ids=["blanks", "target", "headers", "extension", "extensions", "trailers", "trailer"],
)
def test_oversized_framing_of_a_short_body_is_refused(request_bytes):
    with serving_application(Counted().application) as client, connected(client) as connection:
        connection.sendall(request_bytes)
        assert heard(connection).startswith(b"HTTP/1.1 %d " % STATUS[ErrorKind.TOO_LARGE])


def test_a_body_in_chunks_of_one_byte_is_accepted():
    body = bytes(range(97, 123)) * 500
    counted = Counted(max_body_bytes=len(body))
    with serving_application(counted.application) as client, connected(client) as connection:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        connection.sendall(_CHUNKED + chunks + b"0\r\n\r\n")
        assert heard(connection).endswith(b"\r\n\r\n" + body)


def test_requests_before_an_invalid_request_are_answered():
    with serving_application(Counted().application) as client, connected(client) as connection:
        connection.sendall(
            b"GET /echo?1 HTTP/1.1\r\n\r\nGET /echo?2 HTTP/1.1\r\n\r\nnonsense\r\n\r\n"
        )
        received = heard(connection)
    statuses = [answer.split()[0] for answer in received.split(b"HTTP/1.1")[1:]]
    assert statuses == [b"200", b"200", b"422"]


@pytest.fixture(scope="module")
def guarded():
    with serving(DOOR, token="s3cret") as client:
        yield client


def test_a_client_without_the_token_cannot_send_a_body(guarded):
    with connected(guarded) as connection:
        connection.sendall(b"POST /create HTTP/1.1\r\ncontent-length: 4000\r\n\r\n")
        # the server does not wait for the body
        assert heard(connection).startswith(b"HTTP/1.1 401 ")


def test_a_token_in_a_trailer_is_not_accepted(guarded):
    head = b"POST /create HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    with connected(guarded) as connection:
        connection.sendall(head + b"0\r\nauthorization: Bearer s3cret\r\n\r\n")
        assert heard(connection).startswith(b"HTTP/1.1 401 ")


@pytest.fixture(scope="module")
def server():
    with serving(DOOR, host_names=["Door.example"], capacity=100) as client:
        yield client


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:36001", "127.0.0.1:9", "[::1]:36001", "10.1.2.3", "door.example:80"],
)
def test_requests_to_the_servers_own_names_and_addresses_are_answered(server, host):
    assert server.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:36001", "[evil]:1"]
)
def test_requests_with_the_host_name_of_another_site_are_refused(server, host):
    # DNS rebinding: a site resolves its own name to 127.0.0.1, so the browser treats the site and
    # the server as one origin.
    for answer in (
        server.get("/observation?id=0", headers={"host": host}),
        server.post("/create", headers={"host": host, "origin": f"http://{host}"}),
    ):
        assert (answer.status_code, answer.json()["type"]) == (403, ErrorKind.FORBIDDEN)
        assert "--allow-host" in answer.json()["error"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1"]
)
def test_web_pages_of_other_origins_cannot_open_sessions(server, origin):
    before = server.get("/health").json()["sessions"]
    answer = server.post("/create", headers={"origin": origin})
    assert (answer.status_code, answer.json()["type"]) == (403, ErrorKind.FORBIDDEN)
    assert server.get("/health").json()["sessions"] == before


def test_a_web_page_of_the_servers_own_origin_is_answered(server):
    origin = f"http://{server.base_url.host}:{server.base_url.port}"
    assert server.post("/create", headers={"origin": origin}).status_code == 200


def test_with_a_token_any_host_name_but_no_other_origin_is_accepted(guarded):
    headers = {"authorization": "Bearer s3cret", "host": "machine.example"}
    assert guarded.get("/health", headers=headers).status_code == 200
    headers["origin"] = "http://evil.example"
    assert guarded.get("/health", headers=headers).status_code == 403
