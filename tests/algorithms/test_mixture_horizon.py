"""Turn limits by environment, by group of tasks, or drawn at random for each task."""

import collections

import pytest

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.mixture_horizon import (
    DrawnHorizon,
    GroupHorizons,
    MixtureHorizon,
    Place,
)
from agentgym_jax.data.tasks import Task

ADAPTIVE = horizon.adaptive_success((5, 10), 0.5, decay=0.0, min_steps=1, max_steps=0)
SOLVED = horizon.HorizonStatistics(success=1.0, truncation=0.0, turns=1.0)
LOST = horizon.HorizonStatistics(success=0.0, truncation=1.0, turns=None)


def turns(mixture, tasks, step=0, states=None, seed=0):
    limits = mixture.limits(tasks, step, {} if states is None else states, seed=seed)
    return [limit.turns for limit in limits]


def test_every_environment_has_its_own_schedule():
    mixture = MixtureHorizon({"a": horizon.stepwise((6, 13), (2,)), "b": horizon.fixed(30)})
    tasks = [Task("a", 0, "x"), Task("b", 0, "x")]
    assert turns(mixture, tasks, step=1) == [6, 30]
    assert turns(mixture, tasks, step=2) == [13, 30]


def test_every_environment_adapts_independently():
    mixture = MixtureHorizon({"a": ADAPTIVE, "b": ADAPTIVE, "c": horizon.stepwise((1, 2), (1,))})
    tasks = [Task(name, 0, "x") for name in "abc"]
    states = mixture.next({}, {Place("a"): SOLVED, Place("c"): SOLVED})
    assert turns(mixture, tasks) == [5, 5, 1]
    assert turns(mixture, tasks, step=1, states=states) == [10, 5, 2]
    assert set(states) == {Place("a")}


def test_one_group_advances_while_another_stays():
    mixture = MixtureHorizon(
        {"a": GroupHorizons(each=ADAPTIVE, groups={"odd": horizon.fixed(7)}), "b": ADAPTIVE}
    )
    tasks = [Task("a", 0, "easy"), Task("a", 1, "hard"), Task("a", 2, "odd"), Task("b", 3, "easy")]
    places = [limit.place for limit in mixture.limits(tasks, 0, {}, seed=0)]
    assert places == [Place("a", "easy"), Place("a", "hard"), Place("a", "odd"), Place("b")]
    measured = dict(zip(places, [SOLVED, LOST, SOLVED, LOST], strict=True))
    assert turns(mixture, tasks, states=mixture.next({}, measured)) == [10, 5, 7, 5]


def test_a_group_without_tasks_in_a_step_keeps_its_state():
    mixture = MixtureHorizon({"a": GroupHorizons(each=ADAPTIVE, groups={})})
    easy, hard = Place("a", "easy"), Place("a", "hard")
    states = mixture.next({}, {easy: SOLVED, hard: LOST})
    assert mixture.next(states, {hard: LOST})[easy] == states[easy]
    assert mixture.next(states, {}) == states


DRAWN = DrawnHorizon(
    {"short": horizon.periodic((5, 10), 4), "long": horizon.fixed(10)}, {"short": 3, "long": 1}
)
TASKS = [Task("a", i, "x") for i in range(400)]


def test_limits_are_drawn_by_weight_from_schedules_that_advance():
    mixture = MixtureHorizon({"a": DRAWN})
    counts = collections.Counter(turns(mixture, TASKS, step=3))
    # 300 are expected; the standard deviation is 8.7
    assert set(counts) == {5, 10} and 270 <= counts[5] <= 330
    assert set(turns(mixture, TASKS, step=4)) == {10}


def test_a_draw_depends_only_on_seed_step_and_task():
    mixture, again = MixtureHorizon({"a": DRAWN}), MixtureHorizon({"a": DRAWN})
    drawn = turns(mixture, TASKS, step=2, seed=1)
    assert turns(again, TASKS[::-1], step=2, seed=1)[::-1] == drawn
    assert turns(again, TASKS[17:18], step=2, seed=1) == drawn[17:18]
    assert turns(again, TASKS, step=1, seed=1) != drawn
    assert turns(again, TASKS, step=2, seed=2) != drawn


def test_each_schedule_of_a_draw_has_its_own_state():
    weights = {"first": 1, "second": 1}
    mixture = MixtureHorizon({"a": DrawnHorizon(dict.fromkeys(weights, ADAPTIVE), weights)})
    states = mixture.next({}, {Place("a", drawn="first"): SOLVED, Place("a", drawn="second"): LOST})
    limits = mixture.limits(TASKS, 1, states, seed=0)
    assert {(limit.place.drawn, limit.turns) for limit in limits} == {("first", 10), ("second", 5)}


@pytest.mark.parametrize(
    "weights", [{"short": 1}, {"short": 1, "long": 0}, {"short": 1, "long": 0.5}]
)
def test_invalid_weights_of_a_draw_are_refused(weights):
    with pytest.raises(ValueError, match="a drawn horizon needs"):
        DrawnHorizon({"short": horizon.fixed(1), "long": horizon.fixed(2)}, weights)


def test_a_mixture_without_environments_is_refused():
    with pytest.raises(ValueError, match="at least one environment"):
        MixtureHorizon({})
