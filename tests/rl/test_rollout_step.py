"""Selection of the groups that a step trains on, and the cost of the discarded groups."""

import collections
import dataclasses
import types

import numpy as np
import pytest

from agentgym_jax.algorithms.horizon import fixed
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon, Place, TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.controller_state import ControllerState
from agentgym_jax.learner.curriculum import AllTasks
from agentgym_jax.rl.loop import make_records
from agentgym_jax.rl.rl_metrics import resampling_metrics
from agentgym_jax.rl.rollout_step import (
    Groups,
    Rollout,
    draw_round,
    order_informative_first,
)
from agentgym_jax.rl.update_step import age_metrics
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.telemetry.metrics import lookup
from tests.builders import trajectory, turn


def episode(data_idx, sample, actions=1, version=0):
    """Returns an episode with one turn of `actions` action tokens."""
    return trajectory(
        "p" + "a" * actions,
        [turn(1, actions + 1)],
        item_id=f"babyai_{data_idx}",
        sample=sample,
        version=version,
        logprob=0.0,
    )


def groups(*numbers):
    """Returns groups of two episodes each; the episodes of task i have i + 1 action tokens."""
    return Groups(
        size=2,
        tasks=[Task("babyai", i, "GoTo") for i in numbers],
        limits=[TurnLimit(Place("babyai"), i) for i in numbers],
        trajectories=[episode(i, k, actions=i + 1) for i in numbers for k in range(2)],
    )


def test_informative_groups_come_first_in_the_order_drawn():
    assert order_informative_first([False, True, False, True, True]) == (1, 3, 4, 0, 2)
    assert (
        order_informative_first([True] * 20)
        == tuple(range(20))
        == order_informative_first([False] * 20)
    )


def test_groups_kept_from_two_rounds_stay_whole_and_in_order():
    rollout = Rollout(groups(4, 5, 6, 4), kept=(2, 1), metrics={}, tasks_taken=4)
    assert rollout.groups.tasks == [Task("babyai", 6, "GoTo"), Task("babyai", 5, "GoTo")]
    assert [limit.turns for limit in rollout.groups.limits] == [6, 5]
    found = [(t.item_id, t.sample) for t in rollout.groups.trajectories]
    assert found == [("babyai_6", 0), ("babyai_6", 1), ("babyai_5", 0), ("babyai_5", 1)]


def test_a_record_has_its_episodes_advantages_and_says_if_it_was_discarded():
    rollout = Rollout(groups(4, 5, 6, 4), kept=(2, 1), metrics={}, tasks_taken=4)
    trajectories = rollout.groups.trajectories
    experience = types.SimpleNamespace(
        advantage_BT=np.arange(4)[:, None] + np.zeros((4, 9), np.float32),
        reference_logprobs=[t.logprobs - 10 * i for i, t in enumerate(trajectories)],
    )
    found = make_records(rollout, experience)
    assert [r["discarded"] for r in found] == [True, True] + [False] * 4 + [True] * 2
    # Task 6 is the first of the kept tasks, task 5 the second.
    rows = {(6, 0): 0, (6, 1): 1, (5, 0): 2, (5, 1): 3}
    for r in found[2:6]:
        row = rows[int(r["item_id"].removeprefix("babyai_")), r["sample"]]
        assert r["advantages"] == [row] * len(r["tokens"])
        assert r["reference_logprobs"] == [-10 * row] * len(r["tokens"])
    assert not any("advantages" in r for r in (*found[:2], *found[6:]))


def test_a_record_lacks_advantages_that_are_no_numbers():
    """Checks an episode for which a critic or a reference that diverges has given NaN."""
    rollout = Rollout(groups(4), kept=(0,), metrics={}, tasks_taken=1)
    values = np.float32([[np.nan] * 9, [1.0] * 9])
    experience = types.SimpleNamespace(
        advantage_BT=values, reference_logprobs=[row[:6] for row in values[::-1]]
    )
    first, second = make_records(rollout, experience)
    assert "advantages" not in first and first["reference_logprobs"] == [1.0] * 6
    assert second["advantages"] == [1.0] * 6 and "reference_logprobs" not in second


def drawn(tasks, number, *, resamples):
    """Returns the requests of round `number`, which draws `tasks` in this order."""
    rollout = types.SimpleNamespace(
        tasks_per_step=len(tasks), group_size=2, max_rounds=3, max_replacements=1, truncation="fail"
    )
    settings = types.SimpleNamespace(
        rollout=types.SimpleNamespace(**vars(rollout), max_parse_errors=1),
        controllers=types.SimpleNamespace(curriculum=AllTasks()),
        horizon=MixtureHorizon({"babyai": fixed(1)}),
        sampling=types.SimpleNamespace(max_tokens=8),
        resamples=resamples,
    )
    schedule = types.SimpleNamespace(drawn=lambda *_: tasks)
    parts = types.SimpleNamespace(settings=settings, train_schedule=schedule)
    state = ControllerState({}, 0.0, {})
    return draw_round(types.SimpleNamespace(seed=0), parts, state, 5, 0, number=number).requests


@pytest.mark.parametrize("resamples", [False, True])
def test_no_two_episodes_of_a_step_have_the_random_key_of_one_task(resamples):
    tasks = [Task("babyai", i, "GoTo") for i in (3, 4, 3, 3)]
    rounds = range(3 if resamples else 1)
    requests = [r for n in rounds for r in drawn(tasks, n, resamples=resamples)]
    # a replacement has the number of its episode plus the size of the group
    keys = [(r.task.item_id, r.sample + extra) for r in requests for extra in (0, 2)]
    assert len(set(keys)) == len(keys) == 2 * 2 * len(tasks) * len(rounds)
    # the first draw of a task in a round has the numbers of a step without repetition
    assert [r.sample for r in drawn(tasks[:2], 0, resamples=resamples)] == [0, 1, 0, 1]


def test_resampling_metrics_match_hand_computed_values():
    played = groups(0, 1, 2, 3)
    metrics = resampling_metrics(
        np.array([False, True, False, False]),
        played.select([1, 0]).trajectories,
        played.trajectories,
        2,
    )
    assert metrics == {
        "rollout/rounds": 2,
        "rollout/played_groups": 4,
        "rollout/played_informative_groups": 1,
        "rollout/discarded_groups": 2,
        "rollout/discarded_tokens": 2 * 3 + 2 * 4,
    }
    assert all(lookup(name) for name in metrics)


def test_statistics_of_two_rounds_are_added():
    first = CollectStatistics(collections.Counter({"timeout": 1}), restarts=1, seconds=2.0)
    second = CollectStatistics(collections.Counter({"timeout": 2, "gone": 1}), seconds_env_wait=0.5)
    both = first + second
    assert both.env_errors == {"timeout": 3, "gone": 1}
    assert (both.restarts, both.seconds, both.seconds_env_wait) == (1, 2.0, 0.5)


def test_ages_of_the_action_tokens_match_hand_computed_values():
    present, older = episode(0, 0, actions=3, version=7), episode(0, 1, actions=1, version=5)
    assert age_metrics([present, older], step=7) == {
        "policy/off_policy_steps": 0.5,
        "policy/off_policy_steps_max": 2.0,
        "policy/off_policy_share/0": 0.75,
        "policy/off_policy_share/2": 0.25,
        "policy/mixed_version_episodes": 0.0,
    }
    versions = np.where(present.action_mask, [-1, 7, 6, 7], -1).astype(np.int32)
    mixed = dataclasses.replace(present, policy_versions=versions)
    assert age_metrics([mixed, older], step=7)["policy/mixed_version_episodes"] == 0.5
    assert age_metrics([episode(0, 0, actions=0)], step=7) == {"policy/off_policy_steps": 0.0}
    assert all(lookup(name) for name in age_metrics([mixed, older], step=7))
