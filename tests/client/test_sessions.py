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
    log = ""

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


@pytest.mark.parametrize(("workers", "is_told"), [(1, True), (8, False)])
def test_slow_resets_on_few_workers_are_reported_once(sessions, caplog, workers, is_told):
    sessions.client.health = lambda: {"workers": workers}
    for seconds in (20.0, 2.0, 40.0, 60.0, 80.0):
        sessions.check_load(seconds, threads=64)
    told = [r.getMessage() for r in caplog.records if "env_server.workers" in r.getMessage()]
    assert len(told) == is_told
    assert not told or "a reset takes 2.0 s" in told[0] and "wait for 128 s" in told[0]


def test_an_error_has_the_log_of_its_server(sessions):
    sessions.client.log = "logs/textcraft.stderr.log"
    with pytest.raises(EnvError, match="logs/textcraft.stderr.log"):
        sessions.call(refuse)
