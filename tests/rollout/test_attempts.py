"""What becomes of an episode whose environment fails."""

import dataclasses

import numpy as np
import pytest

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.env_client.pool import ReplyKind
from agentgym_jax.rollout.attempts import AttemptPolicy, Attempts, Fate, check_some_played
from agentgym_jax.trajectory import Outcome, Trajectory

ERROR = EnvError(EnvCause.TIMEOUT, "no answer")
TASKS = [Task("maze", i, "maze") for i in range(3)]


def fates(policy, attempts, count, task=TASKS[0]):
    found = []
    for _ in range(count):
        attempts.begin()
        found.append(policy.failed(attempts, task, ReplyKind.STEP, ERROR))
    return found


def test_every_sample_has_its_attempts_and_then_the_episode_is_given_up():
    attempts = Attempts()
    found = fates(AttemptPolicy(2, 1, 60.0), attempts, 4)
    assert found == [Fate.AGAIN, Fate.OTHER_SAMPLE, Fate.AGAIN, Fate.GIVEN_UP]
    assert attempts.in_all == 4 and attempts.replacements == 1


def test_without_replacements_the_last_attempt_is_the_end():
    assert fates(AttemptPolicy(1, 0, 60.0), Attempts(), 1) == [Fate.GIVEN_UP]


def test_a_failure_with_everybodys_costs_no_attempt_and_pauses_until_a_step_succeeds():
    policy, attempts = AttemptPolicy(2, 0, 60.0), [Attempts(), Attempts()]
    assert fates(policy, attempts[1], 1, TASKS[1]) == [Fate.AGAIN]
    assert set(fates(policy, attempts[0], 9)) == {Fate.AGAIN}
    assert attempts[0].of_sample == 0 and attempts[0].in_all == attempts[0].pauses == 9
    policy.answered(attempts[0], TASKS[0], ReplyKind.START)
    assert attempts[0].pauses == 9
    policy.answered(attempts[0], TASKS[0], ReplyKind.STEP)
    assert attempts[0].pauses == 0
    assert fates(policy, attempts[0], 2) == [Fate.AGAIN, Fate.GIVEN_UP]


def test_a_server_that_fails_everybody_beyond_the_patience_ends_the_collection():
    policy = AttemptPolicy(2, 0, 0.0)
    fates(policy, Attempts(), 1, TASKS[1])
    with pytest.raises(ServerUnavailable, match="maze server failed every step of 2 tasks"):
        fates(policy, Attempts(), 1)


NO_TOKENS = np.zeros(0, np.int32)
FAILED = Trajectory(
    item_id="maze_0",
    sample=0,
    step=0,
    outcome=Outcome.ENV_ERROR,
    score=0.0,
    success=False,
    tokens=NO_TOKENS,
    sources=NO_TOKENS,
    logprobs=NO_TOKENS,
    policy_versions=NO_TOKENS,
    turns=(),
    messages=(),
    error="no answer",
    attempts=3,
)


def check(*trajectories):
    tasks = [Task(*t.item_id.rsplit("_", 1), "") for t in trajectories]
    check_some_played(tasks, trajectories)


def test_an_environment_that_failed_all_its_tasks_is_an_error_beside_one_that_played():
    other, played = (
        dataclasses.replace(FAILED, item_id="maze_1", attempts=2),
        dataclasses.replace(FAILED, item_id="wordle_0", outcome=Outcome.SUCCESS, error=""),
    )
    with pytest.raises(ServerUnavailable, match="maze server let none of 2.*2 times.*no answer"):
        check(FAILED, played, other)
    check(FAILED, FAILED, played)  # one task says nothing about its server
    check(FAILED, dataclasses.replace(other, outcome=Outcome.HORIZON), played)
