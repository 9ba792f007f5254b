"""Sessions on one server that dies and returns while calls are running."""

import itertools
import threading

import pytest

from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.failures import Breaker
from agentgym_jax.client.sessions import ServerSessions
from tests.waiting import PATIENCE_S


class Client:
    environment = base_url = "textcraft"

    def __init__(self):
        self.numbers = itertools.count()

    def create(self, request_id):
        return next(self.numbers)


class LockAfter:
    """Lock that calls a function before it is acquired for the first time."""

    def __init__(self, before):
        self.before = before
        self.lock = threading.Lock()

    def __enter__(self):
        before, self.before = self.before, lambda: None
        before()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def refuse():
    raise EnvError(EnvCause.SERVER_GONE, "connection refused")


@pytest.fixture
def sessions():
    breaker = Breaker(60.0, failures=20)
    return ServerSessions(Client(), max_idle=4, breaker=breaker, close_timeout_s=PATIENCE_S)


def test_a_refused_call_loses_the_sessions_opened_before_it(sessions):
    session = sessions.create()
    with pytest.raises(EnvError):
        sessions.call(refuse)
    assert not sessions.is_current(session)
    assert not sessions.keep(session)


def test_a_refused_call_keeps_sessions_opened_before_it_is_recorded(sessions):
    found = []
    sessions._lock = LockAfter(lambda: found.append(sessions.create()))
    with pytest.raises(EnvError):
        sessions.call(refuse)
    assert sessions.is_current(found[0])


def test_a_call_from_before_a_restart_loses_no_session(sessions):
    found = []

    def refuse_after_a_restart():
        sessions.invalidate()
        found.append(sessions.create())
        refuse()

    with pytest.raises(EnvError):
        sessions.call(refuse_after_a_restart)
    assert sessions.is_current(found[0])
