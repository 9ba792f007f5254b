import math

import numpy as np
import pytest

from agentgym_jax.viewer.series import Run, horizon_stages, rolling_mean, time_shares

TIMES = {
    "time/iteration_s": 10.0,
    "time/rollout_s": 6.0,
    "time/decode_s": 4.0,
    "time/update_s": 3.0,
}


def test_a_value_that_is_not_finite_is_a_missing_point():
    run = Run([{"step": 1, "policy/loss": math.nan}, {"step": 2, "policy/loss": 3.0}])
    steps, values = run.series("policy/loss")
    assert (steps.tolist(), values.tolist()) == ([2.0], [3.0])
    assert not Run([{"step": 1, "policy/loss": math.nan}]).has("policy/loss")


def test_the_rolling_mean_matches_hand_computed_values():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert rolling_mean(values, 2).tolist() == [1.0, 1.5, 2.5, 3.5]


def test_the_horizon_stages_match_hand_computed_values():
    steps, turns = np.arange(1.0, 7.0), np.array([5.0, 5.0, 10.0, 10.0, 10.0, 5.0])
    assert horizon_stages(steps, turns) == [(1, 2, 5), (3, 5, 10), (6, 6, 5)]


def test_time_shares_split_the_rollout_and_add_up_to_one():
    steps, shares = time_shares(Run([{"step": 7, **TIMES}]))
    assert steps.tolist() == [7]
    seconds = {label: 10 * share[0] for label, share in shares.items() if share[0]}
    assert seconds == pytest.approx({"decode": 4, "rollout, other": 2, "update": 3, "other": 1})


def test_evaluation_time_is_added_to_the_time_of_the_step():
    _, shares = time_shares(Run([{"step": 1, **TIMES, "time/eval_s": 10.0}]))
    assert shares["evaluation"][0] == pytest.approx(0.5)
    assert shares["other"][0] == pytest.approx(0.05)


def test_time_shares_of_parts_longer_than_the_step_still_add_up_to_one():
    _, shares = time_shares(Run([{"step": 1, **TIMES, "time/update_s": 34.0}]))
    assert sum(share[0] for share in shares.values()) == pytest.approx(1)
    assert shares["update"][0] == pytest.approx(0.85)


def test_groups_with_data_are_in_natural_order():
    line = {
        "step": 1,
        "eval/success/l 10": 0.1,
        "eval/success/l 2": 0.2,
        "eval/success/x": math.nan,
    }
    assert Run([line]).groups("eval/success") == ["l 2", "l 10"]
