import math

import pytest

from agentgym_jax.viewer.early_warnings import early_warnings
from agentgym_jax.viewer.series import Run

ROW = {
    "item": "a_1",
    "outcome": "failure",
    "reward": 0.0,
    "turns": 4,
    "tokens": 10,
    "parse_errors": 0,
    "rejected": 0,
    "repeated": 0,
    "entropy": 1.0,
}


def warning(key, rows_of_step, metrics=(), limit=0.01):
    found = early_warnings(rows_of_step, Run(list(metrics)), limit)
    return {one.key: one for one in found}[key]


@pytest.mark.parametrize(("horizon", "level"), [(4, "ok"), (6, "watch"), (9, "alarm")])
def test_many_episodes_at_their_turn_limit_raise_a_warning(horizon, level):
    rows = [ROW | {"outcome": "horizon"}] * horizon + [ROW] * (10 - horizon)
    found = warning("saturation", {1: rows})
    assert found.points == [(1, horizon / 10)] and found.level == level


def test_shares_are_over_turns_and_not_over_episodes():
    rows = [ROW | {"turns": 9, "parse_errors": 3}, ROW | {"turns": 1}]
    assert warning("parse_errors", {1: rows}).recent == pytest.approx(0.3)


def test_episodes_without_rejection_marks_are_left_out():
    rows = [ROW | {"rejected": 2}, ROW | {"rejected": None, "turns": 100}]
    assert warning("rejected", {1: rows}).recent == pytest.approx(0.5)
    assert warning("rejected", {1: rows[1:]}).level == "unknown"


def test_only_recent_steps_raise_a_warning():
    bad, good = [ROW | {"repeated": 4}], [ROW]
    steps = {step: bad if step < 10 else good for step in range(1, 15)}
    assert warning("repeated", steps).level == "ok"


def test_groups_of_equal_rewards_count_but_single_episodes_do_not():
    rows = [ROW, ROW, ROW | {"item": "b_1"}, ROW | {"item": "b_1", "reward": 1.0}]
    assert warning("zero_variance", {1: [*rows, ROW | {"item": "c_1"}]}).recent == 0.5
    alone = warning("zero_variance", {1: rows[2:], 2: [ROW]})
    assert alone.points == [(1, 0.0)] and warning("zero_variance", {2: [ROW]}).level == "unknown"


def test_the_logged_share_of_flat_groups_counts_where_there_is_one():
    rows = [ROW, ROW, ROW | {"item": "b_1"}, ROW | {"item": "b_1", "reward": 1.0}]
    line = {"step": 1, "rollout/groups": 4.0, "rollout/zero_variance_groups": 3.0}
    assert warning("zero_variance", {1: rows}, [line]).points == [(1, 0.75)]


@pytest.mark.parametrize(("last", "level"), [(0.9, "ok"), (0.2, "watch"), (0.05, "alarm")])
def test_entropy_is_compared_with_its_initial_value(last, level):
    lines = [{"step": s, "policy/entropy": 1.0 if s <= 5 else last} for s in range(1, 11)]
    assert warning("entropy", {}, lines).level == level


def test_without_an_entropy_metric_the_mean_over_sampled_tokens_is_used():
    rows = [ROW | {"entropy": 1.0, "tokens": 30}, ROW | {"entropy": 3.0, "tokens": 10}]
    assert warning("entropy", {1: rows}).points == [(1, 1.5)]


@pytest.mark.parametrize(
    ("gap", "limit", "level"),
    [(1e-6, 0.01, "ok"), (2e-3, 0.01, "watch"), (6e-3, 0.01, "alarm"), (6e-3, None, "unknown")],
)
def test_the_log_probability_gap_is_compared_with_the_limit_of_the_run(gap, limit, level):
    lines = [{"step": 1, "policy/logprob_gap_mean": gap}]
    assert warning("logprob_gap", {}, lines, limit).level == level


@pytest.mark.parametrize(
    ("key", "name"),
    [("entropy", "policy/entropy"), ("logprob_gap", "policy/logprob_gap_mean")],
)
def test_a_value_that_is_not_finite_is_an_alarm_while_it_is_recent(key, name):
    lines = [{"step": s, name: math.nan if s == 6 else 1e-4} for s in range(1, 13)]
    found = warning(key, {1: [ROW]}, lines[:8])
    assert (found.level, found.nonfinite, found.recent) == ("alarm", 1, None)
    found = warning(key, {1: [ROW]}, lines)
    assert (found.level, found.nonfinite) == ("ok", 0) and found.recent == pytest.approx(1e-4)


def test_a_run_without_episodes_or_metrics_has_no_verdict():
    assert {one.level for one in early_warnings({}, Run([]), 0.01)} == {"unknown"}
