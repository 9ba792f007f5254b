import collections

import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.algorithms.mixture_horizon import Place, TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.experience import make_experience
from agentgym_jax.metrics import lookup
from agentgym_jax.rollout.collect import CollectStatistics
from agentgym_jax.sampling.statistics import SamplerStatistics
from agentgym_jax.training import rollout_metrics
from agentgym_jax.trajectory import Outcome, TokenSource, Trajectory, Turn

BOTH = ("babyai", "textcraft")
TASKS = [Task("babyai", 3, "depth 1"), Task("textcraft", 8, "depth 1"), Task("babyai", 5, "GoTo")]
# Two episodes a task.
OUTCOMES = [
    *(Outcome.SUCCESS, Outcome.FAILURE),
    *(Outcome.HORIZON, Outcome.ENV_ERROR),
    *(Outcome.FAILURE, Outcome.FAILURE),
]


def episode(task, sample, outcome, turns):
    """A prompt token, then turns of one action token each."""
    sources = [TokenSource.PROMPT] + [TokenSource.ACTION] * turns
    return Trajectory(
        item_id=task.item_id,
        sample=sample,
        step=0,
        outcome=outcome,
        score=0.0,
        success=outcome is Outcome.SUCCESS,
        tokens=np.zeros(turns + 1, np.int32),
        sources=np.array(sources, np.int8),
        logprobs=np.zeros(turns + 1, np.float32),
        policy_versions=np.zeros(turns + 1, np.int32),
        turns=tuple(Turn(i + 1, i + 2, "", "x", "", 0.0, False) for i in range(turns)),
        messages=(),
    )


def trajectories(tasks=TASKS):
    return [
        episode(task, sample, OUTCOMES[2 * i + sample], turns=2 * i + sample + 1)
        for i, task in enumerate(tasks)
        for sample in range(2)
    ]


def metrics(environments, tasks=TASKS):
    statistics = CollectStatistics(collections.Counter({"timeout": 1}))
    return rollout_metrics.of(
        trajectories(tasks), statistics, SamplerStatistics(), tasks, environments
    )


def test_every_environment_of_a_mixture_has_its_own_numbers_beside_the_pooled_ones():
    m = metrics(BOTH)
    assert m["rollout/success"] == pytest.approx(1 / 5)
    assert m["rollout/babyai/success"] == pytest.approx(1 / 4)
    assert m["rollout/textcraft/success"] == 0.0
    assert m["rollout/babyai/turns_mean"] == pytest.approx((1 + 2 + 5 + 6) / 4)
    assert m["rollout/textcraft/turns_mean"] == 3.0  # the failed environment does not count
    assert m["rollout/textcraft/truncation_rate"] == 1.0
    assert m["rollout/babyai/truncation_rate"] == 0.0
    assert m["rollout/textcraft/invalid_fraction"] == 0.5
    assert m["rollout/babyai/episodes"] + m["rollout/textcraft/episodes"] == m["rollout/episodes"]
    for name in m:
        lookup(name)


def test_groups_of_the_same_name_do_not_mix():
    m = metrics(BOTH)
    assert m["rollout/success/babyai depth 1"] == 0.5
    assert m["rollout/success/textcraft depth 1"] == 0.0
    assert "rollout/success/depth 1" not in m


def test_one_environment_logs_what_it_always_logged():
    tasks = [Task("babyai", i, "GoTo") for i in range(3)]
    m = metrics(("babyai",), tasks)
    assert not [name for name in m if "babyai" in name]
    assert m["rollout/success/GoTo"] == pytest.approx(1 / 5)


def test_an_environment_without_episodes_in_a_step_has_no_numbers():
    tasks = [Task("babyai", i, "GoTo") for i in range(3)]
    m = metrics(BOTH, tasks)
    assert m["rollout/babyai/episodes"] == 6
    assert not [name for name in m if "textcraft" in name]
    assert "rollout/success/babyai GoTo" in m  # its name does not depend on who else came


def test_one_limit_for_all_is_one_number():
    assert rollout_metrics.of_limits([TurnLimit(Place("babyai"), 6)] * 3, ("babyai",)) == {
        "horizon/turns": 6.0
    }


def test_limits_of_environments_and_groups_have_names_of_their_own():
    limits = [
        TurnLimit(Place("babyai", "GoTo"), 6),
        TurnLimit(Place("babyai", "Open", "long"), 9),
        TurnLimit(Place("babyai", "Open", "short"), 3),
        TurnLimit(Place("textcraft"), 30),
    ]
    m = rollout_metrics.of_limits(limits, (*BOTH, "maze"))
    assert m == {
        "horizon/turns": 30.0,
        "horizon/turns_mean": 12.0,
        "horizon/turns_min": 3.0,
        "horizon/babyai/turns": 9.0,
        "horizon/textcraft/turns": 30.0,
        "horizon/turns/babyai GoTo": 6.0,
        "horizon/turns/babyai Open": 9.0,
    }
    for name in m:
        lookup(name)
    alone = rollout_metrics.of_limits(limits[:3], ("babyai",))
    assert alone["horizon/turns/GoTo"] == 6.0 and "horizon/babyai/turns" not in alone


def test_what_the_groups_of_each_environment_have_to_teach():
    experience = make_experience(
        trajectories(),
        algorithm=ALGORITHMS["grpo"],
        group_size=2,
        max_tokens=8,
        reward="success",
        wasted_turn_penalty=0.0,
        truncation="fail",
        advantage_options=dict(std_normalize=True, eps=1e-6),
    )
    m = rollout_metrics.of_groups(experience, TASKS, BOTH)
    assert (m["rollout/groups"], m["rollout/informative_groups"]) == (3, 1)
    assert m["rollout/zero_variance_groups"] == 1
    babyai = [m[f"rollout/babyai/{k}groups"] for k in ("", "informative_", "zero_variance_")]
    textcraft = [m[f"rollout/textcraft/{k}groups"] for k in ("", "informative_", "zero_variance_")]
    assert babyai == [2, 1, 1]
    assert textcraft == [1, 0, 0]  # one valid episode is no group
    for name in m:
        lookup(name)
    alone = rollout_metrics.of_groups(experience, TASKS, ("babyai",))
    assert set(alone) < set(m) and not [name for name in alone if "babyai" in name]
