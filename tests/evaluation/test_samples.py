"""Numbers from several samples and turns, against enumeration."""

import itertools

import numpy as np
import pytest

from agentgym_jax.evaluation import curves, intervals, samples
from agentgym_jax.evaluation.scores import EpisodeScore
from agentgym_jax.trajectory import Outcome


def episode(task, success, sample=0, turns=4, outcome=None):
    if outcome is None:
        outcome = Outcome.SUCCESS if success else Outcome.HORIZON
    return EpisodeScore(f"coin_{task}", "coin", sample, success, float(success), turns, outcome)


@pytest.mark.parametrize("n, c, k", [(4, 2, 2), (5, 3, 3), (6, 6, 1), (6, 0, 6), (6, 4, 4)])
def test_majority_is_the_share_of_subsets_that_vote_right_with_ties_halved(n, c, k):
    correct = [True] * c + [False] * (n - c)
    votes = [2 * sum(subset) - k for subset in itertools.combinations(correct, k)]
    share = sum((v > 0) + 0.5 * (v == 0) for v in votes) / len(votes)
    assert samples.majority_at_k(n, c, k) == pytest.approx(share)


def test_both_estimators_of_one_sample_are_the_rate():
    for name in samples.ESTIMATORS:
        assert samples.at_k(name, [(4, 1), (2, 2)], 1) == pytest.approx((0.25 + 1) / 2)


def test_majority_needs_k_samples():
    with pytest.raises(ValueError, match="at least k samples"):
        samples.majority_at_k(3, 1, 4)


def test_a_bootstrap_interval_holds_the_mean_shrinks_with_tasks_and_repeats_itself():
    values = [float(x) for x in np.random.default_rng(0).normal(50, 20, 400)]
    low, high = intervals.bootstrap_interval(values)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(
        2 * 1.96 * np.std(values) / 20, rel=0.08
    )  # 0.16 if a tail were 5%
    assert (low, high) == intervals.bootstrap_interval(values)
    halves = intervals.bootstrap_interval([0.0] * 50 + [100.0] * 50)
    assert halves == pytest.approx((50 - 1.96 * 5, 50 + 1.96 * 5), abs=1)
    assert intervals.bootstrap_interval([3.0, 3.0]) == (3.0, 3.0)
    few = intervals.bootstrap_interval(values[:40])
    assert few[1] - few[0] > high - low


def play(solves_at, limit):
    """An agent that does not know its limit: it solves its task at a turn, or never."""
    solved = solves_at is not None and solves_at <= limit
    return solved, (solves_at if solved else limit)


def test_a_turn_curve_is_what_playing_under_each_limit_would_have_given():
    rng = np.random.default_rng(1)
    when = [[None if x > 8 else int(x) for x in rng.integers(1, 13, 3)] for _ in range(20)]

    def rollouts(limit):
        return [
            episode(task, play(at, limit)[0], s, play(at, limit)[1])
            for task, ats in enumerate(when)
            for s, at in enumerate(ats)
        ]

    curve = curves.turn_budgets(rollouts(8), max_turns=8, tell_budget="none")
    assert [row["turns"] for row in curve] == list(range(1, 9))
    for row in curve:
        played = curves.turn_budgets(
            rollouts(row["turns"]), max_turns=row["turns"], tell_budget="none"
        )[-1]
        assert played == row
    assert [r["success"] for r in curve] == sorted(r["success"] for r in curve)
    assert curve[-1]["pass_at_k"]["1"] == curve[-1]["success"]


@pytest.mark.parametrize("telling", ["start", "every_turn"])
def test_an_agent_that_is_told_its_budget_has_no_curve(telling):
    with pytest.raises(ValueError, match="told its budget"):
        curves.turn_budgets([episode(0, True)], max_turns=8, tell_budget=telling)


def test_failed_environments_are_in_no_curve():
    good = [episode(0, True, s, turns=s + 1) for s in range(2)]
    failed = [episode(1, False, outcome=Outcome.ENV_ERROR, turns=1)]
    assert curves.turn_budgets(good + failed, max_turns=3, tell_budget="none") == (
        curves.turn_budgets(good, max_turns=3, tell_budget="none")
    )
    assert curves.sample_counts(good + failed) == curves.sample_counts(good)
    assert curves.turn_budgets(failed, max_turns=3, tell_budget="none") == []


def test_sample_counts_by_hand():
    # Two tasks of two samples: one solved once, one solved twice.
    both = [episode(0, True), episode(0, False, 1), episode(1, True), episode(1, True, 1)]
    assert curves.sample_counts(both) == [
        {"k": 1, "pass_at_k": 0.75, "majority_at_k": 0.75},
        {"k": 2, "pass_at_k": 1.0, "majority_at_k": 0.75},
    ]
