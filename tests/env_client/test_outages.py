"""A server that fails everybody is told from an episode that fails alone."""

import pytest

from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.env_client.outages import Outages

ERROR = EnvError(EnvCause.HTTP_STATUS, "status 500: out of memory")


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def outages(clock):
    return Outages(10.0, clock)


def fail(outages, task, *, kind="step", error=ERROR):
    return outages.failed("babyai", kind, task, error)


def test_one_task_that_fails_is_no_outage_however_often(outages, clock):
    for _ in range(50):
        clock.seconds += 1
        assert not fail(outages, 1)


def test_a_second_task_without_a_success_in_between_is_one(outages):
    assert not fail(outages, 1)
    assert fail(outages, 2)
    assert fail(outages, 1)


def test_a_success_ends_it(outages):
    fail(outages, 1)
    fail(outages, 2)
    outages.answered("babyai", "step", 3)
    assert not fail(outages, 1)


def test_starts_that_succeed_say_nothing_about_steps(outages):
    fail(outages, 1)
    outages.answered("babyai", "start", 2)
    assert fail(outages, 2)


def test_environments_are_apart(outages):
    fail(outages, 1)
    assert not outages.failed("textcraft", "step", 2, ERROR)


def test_tasks_that_failed_while_others_were_well_are_never_an_outage(outages, clock):
    """Two broken tasks that are the last of a step must not look like a broken server."""
    for task in (1, 2):
        fail(outages, task)
        outages.answered("babyai", "step", 3)
    for _ in range(50):
        clock.seconds += 1
        assert not fail(outages, 1) and not fail(outages, 2)


def test_a_task_that_did_well_again_counts_again(outages):
    fail(outages, 1)
    outages.answered("babyai", "step", 3)
    outages.answered("babyai", "step", 1)
    fail(outages, 1)
    assert fail(outages, 2)


def test_an_outage_is_borne_with_patience_and_then_told_with_its_causes(outages, clock):
    fail(outages, 1, error=EnvError(EnvCause.TIMEOUT, "slow"))
    clock.seconds += 9.9
    assert fail(outages, 2)
    clock.seconds += 0.2
    with pytest.raises(ServerUnavailable) as caught:
        fail(outages, 3)
    for part in ("babyai", "step of 3 tasks", "10 s", "http_status 2", "timeout 1", "memory"):
        assert part in str(caught.value)
    assert "resume" in str(caught.value)


def test_a_full_server_is_not_a_failing_one(outages):
    full = EnvError(EnvCause.CAPACITY, "full")
    assert not any(fail(outages, task, error=full) for task in range(5))
