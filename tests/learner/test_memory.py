import dataclasses
import json

import pytest

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.horizon import HorizonState, HorizonStatistics
from agentgym_jax.algorithms.mixture_horizon import (
    DrawnHorizon,
    GroupHorizons,
    MixtureHorizon,
    Place,
    TurnLimit,
)
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.memory import Adaptation, Memory, horizon_statistics
from agentgym_jax.trajectory import Outcome

AVERAGE = dict(kind="moving_average", decay=0.5)
ADAPTIVE = dict(kind="adaptive", coef=0.1, target=0.01, rate=0.1)
NONE = dict(kind="none")
ADAPTIVE_HORIZON = horizon.adaptive_success((3, 6), 0.5, decay=0.3, min_steps=2, max_steps=0)
SCHEDULES = MixtureHorizon(
    {
        "babyai": GroupHorizons(
            each=ADAPTIVE_HORIZON,
            groups={
                "GoTo": DrawnHorizon(
                    {"short": ADAPTIVE_HORIZON, "long": horizon.fixed(6)}, {"short": 1, "long": 1}
                )
            },
        ),
        "textcraft": ADAPTIVE_HORIZON,
        "maze": horizon.fixed(4),
    }
)
OPEN, SHORT = Place("babyai", "Open"), Place("babyai", "GoTo", "short")
PLACES = [OPEN, SHORT, Place("babyai", "GoTo", "long"), Place("textcraft"), Place("maze")]


def adaptation(baseline=AVERAGE, kl_reward=ADAPTIVE):
    return Adaptation(horizon=SCHEDULES, baseline=baseline, kl_reward=kl_reward)


def step(rules, memory, mean_return, divergence, success):
    """All places have tasks; what the first measures of success, the others measure less of."""
    statistics = {
        place: HorizonStatistics(
            success=None if success is None else success / (1 + i), truncation=None, turns=None
        )
        for i, place in enumerate(PLACES)
    }
    means = {} if mean_return is None else {"babyai": mean_return}
    return rules.next(
        memory, mean_returns=means, divergence=divergence, horizons=statistics, tasks=3
    )


def test_each_environment_has_a_baseline():
    """Pooled, an easy environment would raise what is expected of a hard one."""
    rules = adaptation()
    memory = rules.first()
    for means in ({"babyai": 1.0, "textcraft": 0.0}, {"textcraft": 0.5}, {}):
        memory = rules.next(memory, mean_returns=means, divergence=None, horizons={}, tasks=3)
    assert memory.expected_returns == {"babyai": 1.0, "textcraft": 0.25}


def test_a_memory_by_hand():
    rules = adaptation()
    memory = rules.first()
    assert memory == Memory({}, 0.1, {})
    memory = step(rules, memory, mean_return=1.0, divergence=0.5, success=0.6)
    assert memory.tasks_taken == 3
    assert memory.expected_returns == {"babyai": 1.0} and memory.kl_coef == pytest.approx(0.102)
    memory = step(rules, memory, mean_return=0.0, divergence=0.0, success=0.6)
    assert memory.expected_returns == {"babyai": 0.5} and memory.kl_coef == pytest.approx(
        0.102 * 0.98
    )
    tasks = [Task("babyai", 0, "Open"), Task("textcraft", 0, "depth 1"), Task("maze", 0, "")]
    limits = SCHEDULES.limits(tasks, 2, memory.horizons, seed=0)
    assert [limit.turns for limit in limits] == [6, 3, 4]
    assert set(memory.horizons) == {OPEN, SHORT, Place("textcraft")}  # the others do not adapt
    assert memory.horizons[SHORT] == HorizonState(stage=0, steps=2, average=0.3)


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
    tasks = [Task("babyai", i, group) for i in range(9) for group in ("Open", "GoTo")]
    limits = [SCHEDULES.limits(tasks, 4, memory.horizons, seed=3) for memory in (resumed, through)]
    assert limits[0] == limits[1] and {limit.turns for limit in limits[0]} == {3, 6}


def test_what_does_not_adapt_stays():
    rules = adaptation(baseline=NONE, kl_reward=dict(kind="fixed", coef=0.2))
    memory = step(rules, rules.first(), 1.0, 5.0, 0.0)
    assert memory.expected_returns == {} and memory.kl_coef == 0.2
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
    a, b = Place("a"), Place("b")
    found = horizon_statistics(
        [solved, cut, failed, failed, lost, failed],
        [TurnLimit(a, 4), TurnLimit(b, 8), TurnLimit(a, 4)],
    )
    assert found[a] == HorizonStatistics(success=1 / 3, truncation=1 / 3, turns=0.5)
    assert found[b] == HorizonStatistics(success=None, truncation=None, turns=None)


def test_statistics_of_horizons_keep_groups_and_draws_apart():
    solved, cut = Played(Outcome.SUCCESS, (0, 0)), Played(Outcome.HORIZON, (0, 0, 0, 0))
    found = horizon_statistics(
        [solved, solved, cut, solved], [TurnLimit(OPEN, 4), TurnLimit(SHORT, 8)]
    )
    assert found[OPEN] == HorizonStatistics(success=1.0, truncation=0.0, turns=0.5)
    assert found[SHORT] == HorizonStatistics(success=0.5, truncation=0.5, turns=0.25)
