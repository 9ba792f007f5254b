"""Curricula: weights, draws and results."""

import itertools

import numpy as np
import pytest

from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.learner.curriculum import AllTasks, SuccessRate

RULE = SuccessRate(candidates=4, decay=0.5, prior=2.0, floor=0.01)
EASY, HARD, MIXED, NEW = (Task("babyai", i, "GoTo") for i in range(4))
OTHER = Task("babyai", 9, "Open")


class Episode:
    def __init__(self, outcome):
        self.outcome, self.success = outcome, outcome is Outcome.SUCCESS


def played(*groups):
    """Returns episodes; each group is a text with + for success, - for failure, x for an error."""
    outcomes = {"+": Outcome.SUCCESS, "-": Outcome.FAILURE, "x": Outcome.ENV_ERROR}
    return [Episode(outcomes[sign]) for group in groups for sign in group]


RESULTS = {
    "task babyai_0": (30.0, 30.0),
    "task babyai_1": (0.0, 30.0),
    "task babyai_2": (9.0, 18.0),
}


def test_the_weight_is_the_beta_binomial_chance_of_different_results():
    """Compares with an enumeration of all results of four episodes (Polya's urn)."""
    a, b = 2.0 * 0.5 + 9, 2.0 * 0.5 + 9
    expected = 0.0
    for results in itertools.product((True, False), repeat=4):
        chance, solved, failed = 1.0, a, b
        for is_solved in results:
            chance *= (solved if is_solved else failed) / (solved + failed)
            solved, failed = solved + is_solved, failed + (not is_solved)
        if 0 < sum(results) < 4:
            expected += chance
    assert RULE.chance_of_variance(MIXED, RESULTS, 4) == pytest.approx(expected)


def test_tasks_with_varying_results_are_preferred():
    tasks = [EASY, HARD, MIXED, NEW]
    drawn = [
        RULE.choose(tasks, 1, RESULTS, group_size=8, key=(seed, 0, 0))[0] for seed in range(400)
    ]
    share = {task: drawn.count(task) / 400 for task in tasks}
    assert share[MIXED] > share[NEW] > share[EASY] > 0 and share[HARD] > 0
    assert share[EASY] + share[HARD] < 0.35


def test_a_new_task_has_the_rate_of_its_group():
    results = {"group babyai GoTo": (98.0, 98.0)}
    assert RULE.chance_of_variance(NEW, results, 8) < 0.1
    assert RULE.chance_of_variance(OTHER, results, 8) > 0.5


def test_a_choice_keeps_the_order_and_depends_on_the_key():
    tasks = [Task("babyai", i, "GoTo") for i in range(32)]
    choices = [RULE.choose(tasks, 8, {}, group_size=8, key=(0, step, 0)) for step in range(5)]
    assert choices[0] == RULE.choose(tasks, 8, {}, group_size=8, key=(0, 0, 0))
    assert len(set(map(tuple, choices))) == 5
    for choice in choices:
        numbers = [task.data_idx for task in choice]
        assert len(choice) == 8 and numbers == sorted(set(numbers))


def test_results_decay_and_leave_out_failed_environments():
    trajectories = played("++--", "xxxx", "+xx-")
    results = RULE.update({}, [EASY, HARD, OTHER], trajectories)
    assert results == {
        "group babyai GoTo": (2.0, 4.0),
        "task babyai_0": (2.0, 4.0),
        "group babyai Open": (1.0, 2.0),
        "task babyai_9": (1.0, 2.0),
    }
    after = RULE.update(results, [EASY], played("++++"))
    assert after["task babyai_0"] == (5.0, 6.0)
    assert after["task babyai_9"] == (1.0, 2.0)


def test_a_task_drawn_twice_in_a_step_counts_once_per_episode():
    assert RULE.update({}, [EASY, EASY], played("+-", "--"))["task babyai_0"] == (1.0, 4.0)


def test_without_a_curriculum_all_tasks_are_trained_in_order():
    rule = AllTasks()
    assert rule.candidates == 1
    assert rule.choose([EASY, HARD], 2, {}, group_size=4, key=(0,)) == [EASY, HARD]
    assert rule.update({}, [EASY], played("++++")) == {}


@pytest.mark.parametrize("group_size", [2, 8, 64])
def test_weights_are_probabilities(group_size):
    noise = np.random.default_rng(0)
    for _ in range(50):
        episodes = float(noise.integers(0, 200))
        results = {"task babyai_0": (float(noise.integers(0, episodes + 1)), episodes)}
        assert 0.0 <= RULE.chance_of_variance(EASY, results, group_size) <= 1.0
