"""A server counts as unavailable after enough failures over enough time, not before."""

import time

from agentgym_jax.env_client.breaker import Breaker
from agentgym_jax.env_client.errors import EnvCause, EnvError


def breaker(failures, patience_s):
    return Breaker("babyai", "http://x:1", failures=failures, patience_s=patience_s)


def test_it_opens_at_the_declared_number_and_names_url_causes_and_way_out():
    guard = breaker(3, 0.0)
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error() is None
    guard.fail(EnvError(EnvCause.CONNECTION, "cut"))
    message = str(guard.error())
    for part in ("babyai", "http://x:1", "timeout 2", "connection 1", "cut", "resume"):
        assert part in message


def test_many_failures_at_one_moment_are_borne_with_patience():
    guard = breaker(2, 0.05)
    for _ in range(10):
        guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error() is None
    time.sleep(0.06)
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error() is not None


def test_one_success_forgets_the_failures():
    guard = breaker(2, 0.0)
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    guard.succeed()
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error() is None


def test_a_full_server_is_not_a_failing_one():
    guard = breaker(1, 0.0)
    guard.fail(EnvError(EnvCause.CAPACITY, "full"))
    assert guard.error() is None
