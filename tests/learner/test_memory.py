import dataclasses
import json

import pytest

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.horizon import HorizonState, HorizonStatistics
from agentgym_jax.learner.memory import Adaptation, Memory, horizon_statistics
from agentgym_jax.trajectory import Outcome

AVERAGE = dict(kind="moving_average", decay=0.5)
ADAPTIVE = dict(kind="adaptive", coef=0.1, target=0.01, rate=0.1)
NONE = dict(kind="none")
SCHEDULES = horizon.mixture(
    {
        "babyai": horizon.adaptive_success((3, 6), 0.5, decay=0.3, min_steps=2, max_steps=0),
        "maze": horizon.fixed(4),
    }
)


def adaptation(baseline=AVERAGE, kl_reward=ADAPTIVE):
    return Adaptation(horizon=SCHEDULES, baseline=baseline, kl_reward=kl_reward)


def step(rules, memory, mean_return, divergence, success):
    statistics = {"babyai": HorizonStatistics(success=success, truncation=None, turns=None)}
    return rules.next(memory, mean_return=mean_return, divergence=divergence, horizons=statistics)


def test_a_memory_by_hand():
    rules = adaptation()
    memory = rules.first()
    assert memory == Memory(None, 0.1, {"babyai": HorizonState()})
    memory = step(rules, memory, mean_return=1.0, divergence=0.5, success=0.6)
    assert memory.expected_return == 1.0 and memory.kl_coef == pytest.approx(0.102)
    memory = step(rules, memory, mean_return=0.0, divergence=0.0, success=0.6)
    assert memory.expected_return == 0.5 and memory.kl_coef == pytest.approx(0.102 * 0.98)
    assert SCHEDULES(2, memory.horizons) == {"babyai": 6, "maze": 4}


@pytest.mark.parametrize("resume_at", range(5))
def test_resuming_through_json_anywhere_equals_running_through(resume_at):
    rules = adaptation()
    steps = [(0.1, 0.3, 0.1), (None, None, None), (0.7, 0.001, 1.0), (1 / 3, 0.02, 0.9)]
    through = resumed = rules.first()
    for i, measured in enumerate(steps):
        if i == resume_at:
            resumed = Memory.from_json(json.loads(json.dumps(resumed.to_json())))
        through, resumed = step(rules, through, *measured), step(rules, resumed, *measured)
    assert resumed == through


def test_what_does_not_adapt_stays():
    rules = adaptation(baseline=NONE, kl_reward=dict(kind="fixed", coef=0.2))
    memory = step(rules, rules.first(), 1.0, 5.0, 0.0)
    assert memory.expected_return is None and memory.kl_coef == 0.2
    assert adaptation(kl_reward=NONE).first().kl_coef == 0.0


@pytest.mark.parametrize(
    ("baseline", "kl_reward", "message"),
    [
        (dict(kind="mean"), NONE, "baseline.kind='mean' is none of none, moving_average"),
        (dict(kind="moving_average"), NONE, "takes .'decay'., got"),
        (dict(kind="moving_average", decay=1.0), NONE, "0 <= decay < 1"),
        (NONE, dict(kind="fixed"), "takes .'coef'., got"),
        (NONE, dict(kind="fixed", coef=0.0), "positive coef"),
        (NONE, ADAPTIVE | dict(target=0.0), "target > 0"),
    ],
)
def test_a_section_that_cannot_be_meant_is_refused(baseline, kl_reward, message):
    with pytest.raises(ValueError, match=message):
        adaptation(baseline, kl_reward)


@dataclasses.dataclass(frozen=True)
class Played:
    """As much of a trajectory as the statistics read."""

    outcome: Outcome
    turns: tuple = ()

    @property
    def success(self):
        return self.outcome is Outcome.SUCCESS


def test_statistics_of_horizons_leave_failed_environments_out():
    solved, cut = Played(Outcome.SUCCESS, (0, 0)), Played(Outcome.HORIZON, (0, 0, 0, 0))
    failed, lost = Played(Outcome.ENV_ERROR), Played(Outcome.FAILURE, (0,))
    found = horizon_statistics(
        [solved, cut, failed, failed, lost, failed],
        ["a", "b", "a"],
        {"a": 4, "b": 8},
    )
    assert found["a"] == HorizonStatistics(success=1 / 3, truncation=1 / 3, turns=0.5)
    assert found["b"] == HorizonStatistics(success=None, truncation=None, turns=None)
