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
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.learner.controller_state import Controllers, ControllerState, horizon_statistics

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


def controllers(baseline=AVERAGE, kl_reward=ADAPTIVE):
    return Controllers(horizon=SCHEDULES, baseline=baseline, kl_reward=kl_reward)


def step(rules, state, mean_return, divergence, success):
    """Updates the controllers; each further place of PLACES has a lower success rate."""
    statistics = {
        place: HorizonStatistics(
            success=None if success is None else success / (1 + i), truncation=None, turns=None
        )
        for i, place in enumerate(PLACES)
    }
    means = {} if mean_return is None else {"babyai": mean_return}
    return rules.update(
        state, mean_returns=means, divergence=divergence, horizons=statistics, tasks_taken=3
    )


def test_each_environment_has_its_own_baseline():
    """With a common baseline, an easy environment would raise the baseline of a hard one."""
    rules = controllers()
    state = rules.initial_state()
    for means in ({"babyai": 1.0, "textcraft": 0.0}, {"textcraft": 0.5}, {}):
        state = rules.update(state, mean_returns=means, divergence=None, horizons={}, tasks_taken=3)
    assert state.expected_returns == {"babyai": 1.0, "textcraft": 0.25}


def test_the_state_matches_hand_computed_values():
    rules = controllers()
    state = rules.initial_state()
    assert state == ControllerState({}, 0.1, {})
    state = step(rules, state, mean_return=1.0, divergence=0.5, success=0.6)
    assert state.tasks_taken == 3
    assert state.expected_returns == {"babyai": 1.0} and state.kl_coef == pytest.approx(0.102)
    state = step(rules, state, mean_return=0.0, divergence=0.0, success=0.6)
    assert state.expected_returns == {"babyai": 0.5} and state.kl_coef == pytest.approx(
        0.102 * 0.98
    )
    tasks = [Task("babyai", 0, "Open"), Task("textcraft", 0, "depth 1"), Task("maze", 0, "")]
    limits = SCHEDULES.limits(tasks, 2, state.horizons, seed=0)
    assert [limit.turns for limit in limits] == [6, 3, 4]
    # no other place has an adaptive horizon
    assert set(state.horizons) == {OPEN, SHORT, Place("textcraft")}
    assert state.horizons[SHORT] == HorizonState(stage=0, steps=2, average=0.3)


@pytest.mark.parametrize("resume_at", range(5))
def test_a_state_restored_from_json_continues_unchanged(resume_at):
    rules = controllers()
    steps = [(0.1, 0.3, 0.1), (None, None, None), (0.7, 0.001, 1.0), (1 / 3, 0.02, 0.9)]
    through = resumed = rules.initial_state()
    for i, measured in enumerate(steps):
        if i == resume_at:
            resumed = ControllerState.from_json(json.loads(json.dumps(resumed.to_json())))
        through, resumed = step(rules, through, *measured), step(rules, resumed, *measured)
    assert resumed == through
    tasks = [Task("babyai", i, group) for i in range(9) for group in ("Open", "GoTo")]
    limits = [SCHEDULES.limits(tasks, 4, state.horizons, seed=3) for state in (resumed, through)]
    assert limits[0] == limits[1] and {limit.turns for limit in limits[0]} == {3, 6}


def test_without_adaptive_controllers_the_state_does_not_change():
    rules = controllers(baseline=NONE, kl_reward=dict(kind="fixed", coef=0.2))
    state = step(rules, rules.initial_state(), 1.0, 5.0, 0.0)
    assert state.expected_returns == {} and state.kl_coef == 0.2
    assert controllers(kl_reward=NONE).initial_state().kl_coef == 0.0


@pytest.mark.parametrize(
    ("baseline", "kl_reward", "message"),
    [
        (
            dict(kind="mean"),
            NONE,
            "baseline.kind is 'mean'; it must be one of none, moving_average",
        ),
        (dict(kind="moving_average"), NONE, "takes .'decay'., got"),
        (dict(kind="moving_average", decay=1.0), NONE, "0 <= decay < 1"),
        (NONE, dict(kind="fixed"), "takes .'coef'., got"),
        (NONE, dict(kind="fixed", coef=0.0), "positive coef"),
        (NONE, ADAPTIVE | dict(target=0.0), "target > 0"),
        (dict(kind={}), NONE, "baseline.kind is {}"),
        (dict(kind="moving_average", decay="0.9"), NONE, "baseline.decay is '0.9'"),
        (NONE, dict(kind="fixed", coef=True), "kl_reward.coef is True"),
        (NONE, ADAPTIVE | dict(target=float("nan")), "kl_reward.target is nan"),
        (NONE, ADAPTIVE | dict(rate=None), "kl_reward.rate is None"),
    ],
)
def test_an_invalid_section_is_refused(baseline, kl_reward, message):
    with pytest.raises(ValueError, match=message):
        controllers(baseline, kl_reward)


@dataclasses.dataclass(frozen=True)
class Played:
    """The fields of a trajectory that the statistics read."""

    outcome: Outcome
    turns: tuple = ()

    @property
    def success(self):
        return self.outcome is Outcome.SUCCESS


def test_horizon_statistics_leave_out_failed_environments():
    solved, cut = Played(Outcome.SUCCESS, (0, 0)), Played(Outcome.HORIZON, (0, 0, 0, 0))
    failed, lost = Played(Outcome.ENV_ERROR), Played(Outcome.FAILURE, (0,))
    a, b = Place("a"), Place("b")
    found = horizon_statistics(
        [solved, cut, failed, failed, lost, failed],
        [TurnLimit(a, 4), TurnLimit(b, 8), TurnLimit(a, 4)],
    )
    assert found[a] == HorizonStatistics(success=1 / 3, truncation=1 / 3, turns=0.5)
    assert found[b] == HorizonStatistics(success=None, truncation=None, turns=None)


def test_horizon_statistics_are_separate_for_groups_and_draws():
    solved, cut = Played(Outcome.SUCCESS, (0, 0)), Played(Outcome.HORIZON, (0, 0, 0, 0))
    found = horizon_statistics(
        [solved, solved, cut, solved], [TurnLimit(OPEN, 4), TurnLimit(SHORT, 8)]
    )
    assert found[OPEN] == HorizonStatistics(success=1.0, truncation=0.0, turns=0.5)
    assert found[SHORT] == HorizonStatistics(success=0.5, truncation=0.5, turns=0.25)
