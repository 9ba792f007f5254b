"""Retries of `create` after a lost reply, which must leave no orphan session on the server."""

import threading

import pytest

from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.client.transport import HttpTransport
from tests.env_clients import connect
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def url():
    with EmbeddedServers(["maze"]) as servers:
        yield servers.urls["maze"]


class LosesAnswers:
    """A transport that sends every request but loses the given number of answers to /create."""

    def __init__(self, url, lost, cause):
        self._http = HttpTransport(
            url, connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S, token=None, connections=8
        )
        self.left, self.cause = lost, cause
        self._lock = threading.Lock()

    def exchange(self, method, target, request, timeout_s, request_id=""):
        answer = self._http.exchange(method, target, request, timeout_s, request_id)
        with self._lock:
            is_lost = target.endswith("/create") and self.left > 0
            self.left -= is_lost
        if is_lost:
            raise EnvError(self.cause, "the answer was lost")
        return answer

    def disconnect(self):
        self._http.disconnect()


def connect_losing(url, lost, cause=EnvCause.CONNECTION):
    return connect(url, "maze", transport=LosesAnswers(url, lost, cause))


@pytest.mark.parametrize(
    ("lost", "cause"),
    [(1, EnvCause.CONNECTION), (9, EnvCause.CONNECTION), (5, EnvCause.TIMEOUT)],
    ids=["resent by the client", "tried again by the pool", "started again by the caller"],
)
def test_a_lost_answer_to_create_leaves_no_extra_session(url, lost, cause):
    client = connect_losing(url, lost, cause)
    before = client.health()["sessions"]
    with EnvPool({"maze": client}, workers=4, max_idle_sessions=8, backoff_s=0.02) as pool:
        for ticket in range(4):
            pool.start(ticket, "maze", ticket)
        playing = set()
        while len(playing) < 4:
            for reply in pool.poll(PATIENCE_S):
                if reply.error is None:
                    playing.add(reply.ticket)
                else:
                    pool.start(reply.ticket, "maze", reply.ticket)
        assert client.health()["sessions"] == before + 4 == before + pool.open_sessions
    assert client.health()["sessions"] == before
    assert client._transport.left == 0


def test_a_create_after_an_announced_restart_has_a_new_request_id(serve, world, free_port):
    with serve(world, free_port) as server:
        client = connect(server.url)
        with EnvPool({"textcraft": client}, workers=1, max_idle_sessions=1) as pool:
            world.faults["/create"] = [(500, b"lost")]
            for _ in range(2):
                pool.start(0, "textcraft", 0)
                pool.poll(PATIENCE_S)
                pool.invalidate("textcraft")
                pool.finish(0)
        names = [
            r.headers["x-agentgym-turn"] for r in server.requests if "x-agentgym-turn" in r.headers
        ]
    first, second, *_ = [name for name in names if name.endswith("/0")]
    assert first != second
