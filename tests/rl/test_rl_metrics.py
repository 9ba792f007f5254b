import collections

import numpy as np
import pytest

from agentgym_jax.algorithms.mixture_horizon import Place, TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.rl import rl_metrics
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.metrics import lookup
from tests.builders import experience_of, trajectory, turn

NORMALIZED = dict(std_normalize=True, eps=1e-6)

BOTH = ("babyai", "textcraft")
TASKS = [Task("babyai", 3, "depth 1"), Task("textcraft", 8, "depth 1"), Task("babyai", 5, "GoTo")]
# Outcomes per task, for two episodes each.
OUTCOMES = [
    *(Outcome.SUCCESS, Outcome.FAILURE),
    *(Outcome.HORIZON, Outcome.ENV_ERROR),
    *(Outcome.FAILURE, Outcome.FAILURE),
]


def episode(task, sample, outcome, turns):
    """Returns an episode whose turns have one action token each."""
    return trajectory(
        "p" + "a" * turns,
        [turn(i + 1, i + 2) for i in range(turns)],
        item_id=task.item_id,
        sample=sample,
        outcome=outcome,
        logprob=0.0,
    )


def trajectories(tasks=TASKS):
    return [
        episode(task, sample, OUTCOMES[2 * i + sample], turns=2 * i + sample + 1)
        for i, task in enumerate(tasks)
        for sample in range(2)
    ]


def metrics(environments, tasks=TASKS):
    statistics = CollectStatistics(collections.Counter({"timeout": 1}))
    return rl_metrics.episode_metrics(
        trajectories(tasks), statistics, SamplerStatistics(), tasks, environments
    )


def test_every_environment_of_a_mixture_has_its_own_metrics():
    m = metrics(BOTH)
    assert m["rollout/success"] == pytest.approx(1 / 5)
    assert m["rollout/babyai/success"] == pytest.approx(1 / 4)
    assert m["rollout/textcraft/success"] == 0.0
    assert m["rollout/babyai/turns_mean"] == pytest.approx((1 + 2 + 5 + 6) / 4)
    # the episode whose environment failed does not count
    assert m["rollout/textcraft/turns_mean"] == 3.0
    assert m["rollout/textcraft/truncation_rate"] == 1.0
    assert m["rollout/babyai/truncation_rate"] == 0.0
    assert m["rollout/textcraft/invalid_fraction"] == 0.5
    assert m["rollout/babyai/episodes"] + m["rollout/textcraft/episodes"] == m["rollout/episodes"]
    for name in m:
        lookup(name)


def test_rates_count_what_ended_in_the_seconds_of_the_rollout():
    # an interval in which episodes of later steps took turns, too
    statistics = CollectStatistics(collections.Counter(), episodes=3, turns=40, seconds=2.0)
    sampler = SamplerStatistics(sampled=100)
    m = rl_metrics.episode_metrics(trajectories(), statistics, sampler, TASKS, BOTH)
    assert m["rate/env_steps_per_s"] == 20.0
    assert m["rate/episodes_per_min"] == 90.0
    assert m["rate/decode_tokens_per_s"] == 50.0


def test_groups_of_the_same_name_have_separate_metrics_per_environment():
    m = metrics(BOTH)
    assert m["rollout/success/babyai depth 1"] == 0.5
    assert m["rollout/success/textcraft depth 1"] == 0.0
    assert "rollout/success/depth 1" not in m


def test_a_single_environment_has_plain_metric_names():
    tasks = [Task("babyai", i, "GoTo") for i in range(3)]
    m = metrics(("babyai",), tasks)
    assert not [name for name in m if "babyai" in name]
    assert m["rollout/success/GoTo"] == pytest.approx(1 / 5)


def test_an_environment_without_episodes_in_a_step_has_no_metrics():
    tasks = [Task("babyai", i, "GoTo") for i in range(3)]
    m = metrics(BOTH, tasks)
    assert m["rollout/babyai/episodes"] == 6
    assert not [name for name in m if "textcraft" in name]
    # the metric's name does not depend on the other environments
    assert "rollout/success/babyai GoTo" in m


def test_a_common_turn_limit_is_one_metric():
    assert rl_metrics.horizon_metrics([TurnLimit(Place("babyai"), 6)] * 3, ("babyai",)) == {
        "horizon/turns": 6.0
    }


def test_limits_of_environments_and_groups_have_separate_names():
    limits = [
        TurnLimit(Place("babyai", "GoTo"), 6),
        TurnLimit(Place("babyai", "Open", "long"), 9),
        TurnLimit(Place("babyai", "Open", "short"), 3),
        TurnLimit(Place("textcraft"), 30),
    ]
    m = rl_metrics.horizon_metrics(limits, (*BOTH, "maze"))
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
    alone = rl_metrics.horizon_metrics(limits[:3], ("babyai",))
    assert alone["horizon/turns/GoTo"] == 6.0 and "horizon/babyai/turns" not in alone


def test_informative_groups_are_counted_per_environment():
    experience = experience_of(
        trajectories(), group_size=2, max_tokens=8, advantage_options=NORMALIZED
    )
    m = rl_metrics.group_metrics(experience, TASKS, BOTH)
    assert (m["rollout/groups"], m["rollout/informative_groups"]) == (3, 1)
    assert m["rollout/zero_variance_groups"] == 1
    babyai = [m[f"rollout/babyai/{k}groups"] for k in ("", "informative_", "zero_variance_")]
    textcraft = [m[f"rollout/textcraft/{k}groups"] for k in ("", "informative_", "zero_variance_")]
    assert babyai == [2, 1, 1]
    assert textcraft == [1, 0, 0]  # a group with one valid episode is not informative
    # 1 and 2 tokens of the first group, and 14 of other valid episodes
    spread = np.std([0.5**0.5, *[-(0.5**0.5)] * 2, *[0.0] * 14])
    assert m["policy/advantage_std"] == pytest.approx(spread, rel=1e-5)
    for name in m:
        lookup(name)
    alone = rl_metrics.group_metrics(experience, TASKS, ("babyai",))
    assert set(alone) < set(m) and not [name for name in alone if "babyai" in name]


def test_every_outcome_has_a_count_even_if_it_is_zero():
    m = metrics(BOTH)
    found = {outcome: m[f"rollout/outcome/{outcome}"] for outcome in Outcome}
    assert found == {outcome: OUTCOMES.count(outcome) for outcome in Outcome}


def test_the_trained_reward_has_the_penalties_and_is_that_of_the_guards():
    """Compares with the rewards of the environment; the reward of a judge is trained likewise."""
    options = dict(reward="success", failed_turn_penalty=0.25, truncation="fail")
    failed = [turn(1, 2, action=None), turn(2, 3)]
    episodes = [
        trajectory("paa", turns, item_id="babyai_3", outcome=outcome, logprob=0.0)
        for turns in (failed, [turn(1, 2), turn(2, 3)])
        for outcome in (Outcome.SUCCESS, Outcome.FAILURE)
    ]
    experience = experience_of(
        episodes, group_size=2, max_tokens=4, advantage_options=NORMALIZED, **options
    )
    tasks = [Task("babyai", 3, "GoTo")] * 2
    found = rl_metrics.group_metrics(experience, tasks, ("babyai",))
    assert found["policy/trained_reward_mean"] == pytest.approx((0.75 - 0.25 + 1.0 + 0.0) / 4)
    # A falling trained reward trips the guard although the reward of the environment is constant.
    options = guards.GuardSettings(window=1)
    history = guards.History()
    for trained, trips in ((1.0, False), (0.1, True)):
        line = {"rollout/reward_mean": 1.0, "rollout/sampled_entropy": 1.0}
        line["policy/trained_reward_mean"] = trained
        assert bool(guards.check_episodes(options, history, line)) == trips
        history = guards.update_history(options, history, line, [])
