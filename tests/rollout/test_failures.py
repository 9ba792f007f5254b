"""Retries of episodes after environment failures, and server outages."""

import dataclasses

import pytest

from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.pool import ReplyKind
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.rollout.retries import Attempts, RetryDecision, RetryPolicy, check_some_served
from tests.builders import trajectory

ERROR = EnvError(EnvCause.TIMEOUT, "no answer")
TASKS = [Task("maze", i, "maze") for i in range(3)]


def decisions(policy, attempts, count, task=TASKS[0]):
    found = []
    for _ in range(count):
        attempts.begin()
        found.append(policy.failed(attempts, task, ReplyKind.STEP, ERROR))
    return found


def test_each_sample_has_its_attempts_before_the_episode_is_given_up():
    attempts = Attempts()
    found = decisions(RetryPolicy(2, 1, 60.0), attempts, 4)
    assert found == [
        RetryDecision.RESTART,
        RetryDecision.OTHER_SAMPLE,
        RetryDecision.RESTART,
        RetryDecision.GIVE_UP,
    ]
    assert attempts.in_all == 4 and attempts.replacements == 1


def test_without_replacements_the_last_attempt_is_final():
    assert decisions(RetryPolicy(1, 0, 60.0), Attempts(), 1) == [RetryDecision.GIVE_UP]


def test_a_failure_in_an_outage_costs_no_attempt_and_pauses_until_a_step_succeeds():
    policy, attempts = RetryPolicy(2, 0, 60.0), [Attempts(), Attempts()]
    assert decisions(policy, attempts[1], 1, TASKS[1]) == [RetryDecision.RESTART]
    assert set(decisions(policy, attempts[0], 9)) == {RetryDecision.RESTART}
    assert attempts[0].of_sample == 0 and attempts[0].in_all == attempts[0].pauses == 9
    policy.answered(attempts[0], TASKS[0], ReplyKind.START)
    assert attempts[0].pauses == 9
    policy.answered(attempts[0], TASKS[0], ReplyKind.STEP)
    assert attempts[0].pauses == 0
    assert decisions(policy, attempts[0], 2) == [RetryDecision.RESTART, RetryDecision.GIVE_UP]


def test_an_outage_beyond_the_patience_ends_the_rollout():
    policy = RetryPolicy(2, 0, 0.0)
    decisions(policy, Attempts(), 1, TASKS[1])
    with pytest.raises(ServerUnavailable, match="maze server failed every step of 2 tasks"):
        decisions(policy, Attempts(), 1)


STATUS_500 = EnvError(EnvCause.HTTP_STATUS, "status 500: out of memory")


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def policy(clock):
    return RetryPolicy(10**6, 0, 10.0, clock)


def fail(policy, number, *, kind=ReplyKind.STEP, error=STATUS_500, environment="babyai"):
    """Reports the failure of a task; returns True if the failure counts as an outage."""
    attempts = Attempts()
    attempts.begin()
    policy.failed(attempts, Task(environment, number, ""), kind, error)
    return attempts.of_sample == 0


def succeed(policy, number, kind=ReplyKind.STEP):
    policy.answered(Attempts(), Task("babyai", number, ""), kind)


def test_repeated_failures_of_one_task_are_not_an_outage(policy, clock):
    for _ in range(50):
        clock.seconds += 1
        assert not fail(policy, 1)


def test_every_failed_attempt_pauses_the_next(policy):
    attempts = Attempts()
    for number in range(1, 4):
        attempts.begin()
        policy.failed(attempts, Task("babyai", 1, ""), ReplyKind.START, STATUS_500)
        assert attempts.pauses == number


def test_failures_of_two_tasks_without_a_success_in_between_are_an_outage(policy):
    assert not fail(policy, 1)
    assert fail(policy, 2)
    assert fail(policy, 1)


def test_a_success_ends_an_outage(policy):
    fail(policy, 1)
    fail(policy, 2)
    succeed(policy, 3)
    assert not fail(policy, 1)


def test_successful_starts_do_not_end_an_outage_of_steps(policy):
    fail(policy, 1)
    succeed(policy, 2, ReplyKind.START)
    assert fail(policy, 2)


def test_each_environment_has_its_own_outages(policy):
    fail(policy, 1)
    assert not fail(policy, 2, environment="textcraft")


def test_tasks_that_failed_while_others_succeeded_are_not_an_outage(policy, clock):
    """Checks two tasks that continue to fail after all other tasks have ended."""
    for task in (1, 2):
        fail(policy, task)
        succeed(policy, 3)
    for _ in range(50):
        clock.seconds += 1
        assert not fail(policy, 1) and not fail(policy, 2)


def test_a_task_counts_again_after_it_succeeded(policy):
    fail(policy, 1)
    succeed(policy, 3)
    succeed(policy, 1)
    fail(policy, 1)
    assert fail(policy, 2)


def test_an_outage_is_tolerated_for_a_while_and_then_reported_with_its_causes(policy, clock):
    fail(policy, 1, error=EnvError(EnvCause.TIMEOUT, "slow"))
    clock.seconds += 9.9
    assert fail(policy, 2)
    clock.seconds += 0.2
    with pytest.raises(ServerUnavailable) as caught:
        fail(policy, 3)
    for part in ("babyai", "step of 3 tasks", "10 s", "http_status 2", "timeout 1", "memory"):
        assert part in str(caught.value)
    assert "resume" in str(caught.value)


def test_a_full_server_is_not_an_outage(policy):
    full = EnvError(EnvCause.CAPACITY, "full")
    assert not any(fail(policy, task, error=full) for task in range(5))


FAILED = trajectory("", item_id="maze_0", outcome=Outcome.ENV_ERROR, error="no answer", attempts=3)


def check(*trajectories):
    tasks = [Task(*t.item_id.rsplit("_", 1), "") for t in trajectories]
    check_some_served(tasks, trajectories)


def test_an_environment_that_failed_all_its_tasks_is_an_error():
    other, played = (
        dataclasses.replace(FAILED, item_id="maze_1", attempts=2),
        dataclasses.replace(FAILED, item_id="wordle_0", outcome=Outcome.SUCCESS, error=""),
    )
    with pytest.raises(ServerUnavailable, match="maze server let none of 2.*2 times.*no answer"):
        check(FAILED, played, other)
    check(FAILED, FAILED, played)  # failures of a single task do not count as a server outage
    check(FAILED, dataclasses.replace(other, outcome=Outcome.HORIZON), played)


BUG = EnvError(
    EnvCause.ENVIRONMENT,
    "game.py:12 in step: KeyError: 'low'",
    origin="game.py:12 in step: KeyError",
)
BUG.log = "runs/a/logs/game.stderr.log"


def fail_in_turn(policy, error, count, tasks=TASKS, kind=ReplyKind.STEP):
    """Lets the tasks fail one after the other; returns the number of failures before the end."""
    attempts = {task: Attempts() for task in tasks}
    for number in range(count):
        task = tasks[number % len(tasks)]
        attempts[task].begin()
        try:
            policy.failed(attempts[task], task, kind, error)
        except ServerUnavailable as unavailable:
            return number + 1, str(unavailable)
    return count, ""


@pytest.mark.parametrize("kind", list(ReplyKind))
def test_a_line_that_fails_every_call_ends_the_rollout_without_waiting(clock, kind):
    policy = RetryPolicy(3, 0, 60.0, clock)
    failures, message = fail_in_turn(policy, BUG, 100, kind=kind)
    assert failures < 20
    for part in ("maze", BUG.message, BUG.log, "run the same command"):
        assert part in message


def test_a_line_that_fails_after_successes_costs_attempts_but_no_patience(clock):
    policy = RetryPolicy(2, 1, 60.0, clock)
    policy.answered(Attempts(), TASKS[0], ReplyKind.STEP)
    assert fail_in_turn(policy, BUG, 100) == (100, "")
    attempts, found = Attempts(), []
    for _ in range(4):
        attempts.begin()
        found.append(policy.failed(attempts, TASKS[0], ReplyKind.STEP, BUG))
    assert found[-1] is RetryDecision.GIVE_UP


def test_only_the_first_failure_of_a_cause_is_logged(clock, caplog):
    policy = RetryPolicy(3, 0, 60.0, clock)
    policy.answered(Attempts(), TASKS[0], ReplyKind.STEP)
    fail_in_turn(policy, BUG, 30)
    fail_in_turn(policy, ERROR, 1)
    warnings = [r.getMessage() for r in caplog.records if "environment failed" in r.getMessage()]
    assert len(warnings) == 2 and BUG.log in warnings[0]
