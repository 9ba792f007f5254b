"""Estimates from several samples and turn limits, compared with enumeration."""

import functools
import itertools

import numpy as np
import pytest

from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation import score_report, scores, statistics
from tests.builders import episode_score

scored = functools.partial(episode_score, failure=Outcome.HORIZON)


@pytest.mark.parametrize("n, c, k", [(4, 2, 2), (5, 3, 3), (6, 6, 1), (6, 0, 6), (6, 4, 4)])
def test_majority_at_k_is_the_share_of_correct_subset_votes(n, c, k):
    correct = [True] * c + [False] * (n - c)
    votes = [2 * sum(subset) - k for subset in itertools.combinations(correct, k)]
    share = sum((v > 0) + 0.5 * (v == 0) for v in votes) / len(votes)
    assert statistics.majority_at_k(n, c, k) == pytest.approx(share)


def test_both_estimators_at_one_sample_equal_the_success_rate():
    for name in statistics.ESTIMATORS:
        assert statistics.at_k(name, [(4, 1), (2, 2)], 1) == pytest.approx((0.25 + 1) / 2)


def test_majority_at_k_needs_k_samples():
    with pytest.raises(ValueError, match="at least k samples"):
        statistics.majority_at_k(3, 1, 4)


def test_bootstrap_intervals_contain_the_mean_shrink_with_tasks_and_repeat():
    values = [float(x) for x in np.random.default_rng(0).normal(50, 20, 400)]
    low, high = statistics.bootstrap_interval(values)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(
        2 * 1.96 * np.std(values) / 20, rel=0.08
    )  # with tails of 5 % the interval would be 16 % narrower
    assert (low, high) == statistics.bootstrap_interval(values)
    halves = statistics.bootstrap_interval([0.0] * 50 + [100.0] * 50)
    assert halves == pytest.approx((50 - 1.96 * 5, 50 + 1.96 * 5), abs=1)
    assert statistics.bootstrap_interval([3.0, 3.0]) == (3.0, 3.0)
    few = statistics.bootstrap_interval(values[:40])
    assert few[1] - few[0] > high - low


def play(solves_at, limit):
    """Returns (solved, turns) of an episode whose agent does not know the turn limit.

    The agent would solve its task at turn `solves_at`.
    """
    solved = solves_at is not None and solves_at <= limit
    return solved, (solves_at if solved else limit)


def test_a_turn_curve_equals_separate_evaluations_at_each_limit():
    rng = np.random.default_rng(1)
    when = [[None if x > 8 else int(x) for x in rng.integers(1, 13, 3)] for _ in range(20)]

    def rollouts(limit):
        return [
            scored(task, play(at, limit)[0], s, turns=play(at, limit)[1])
            for task, ats in enumerate(when)
            for s, at in enumerate(ats)
        ]

    curve = scores.turn_budgets(rollouts(8), 8)
    assert [row["turns"] for row in curve] == list(range(1, 9))
    for row in curve:
        played = scores.turn_budgets(rollouts(row["turns"]), row["turns"])[-1]
        assert played == row
    assert [r["success"] for r in curve] == sorted(r["success"] for r in curve)
    assert curve[-1]["pass_at_k"]["1"] == curve[-1]["success"]


@pytest.mark.parametrize("shown", ["none", "start", "every_turn"])
def test_an_agent_that_sees_its_budget_has_no_turn_curve(shown):
    facts = score_report.score_facts(
        [scored(0, True)],
        {},
        max_turns={"textcraft": 8},
        show_turn_budget=shown,
        is_sampled=True,
        leakage={},
    )
    assert (facts["turn_budgets"] is None) == (shown != "none")


def test_failed_environments_are_left_out_of_turn_curves():
    good = [scored(0, True, s, turns=s + 1) for s in range(2)]
    failed = [scored(1, False, outcome=Outcome.ENV_ERROR, turns=1)]
    assert scores.turn_budgets(good + failed, 3) == (scores.turn_budgets(good, 3))
    assert scores.sample_counts(good + failed) == scores.sample_counts(good)
    assert scores.turn_budgets(failed, 3) == []


def test_sample_counts_match_hand_computed_values():
    # Two tasks have two samples each; the first task is solved once, the second twice.
    both = [scored(0, True), scored(0, False, 1), scored(1, True), scored(1, True, 1)]
    assert scores.sample_counts(both) == [
        {"k": 1, "pass_at_k": 0.75, "majority_at_k": 0.75},
        {"k": 2, "pass_at_k": 1.0, "majority_at_k": 0.75},
    ]
