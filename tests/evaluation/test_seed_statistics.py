"""Statistics over seeds: values computed by hand or from tables."""

import numpy as np
import pytest

from agentgym_jax.evaluation.statistics import holm, sign_flip_p, student_interval


def test_the_student_interval_has_the_quantiles_of_the_tables():
    # standard deviation 1, mean 2; t(0.975) is 4.303 for 2 and 12.706 for 1 degrees of freedom
    low, high = student_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    low, high = student_interval([0.0, 2.0])
    assert high - 1 == pytest.approx(12.7062)
    assert student_interval([3.0]) is None


def test_the_sign_flip_test_counts_patterns_as_extreme_as_the_observed_one():
    assert sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8
    assert sign_flip_p([-1.0, -2.0, -3.0]) == 2 / 8
    # sums of (1, 2, -3) are 0, so every pattern is at least as extreme
    assert sign_flip_p([1.0, 2.0, -3.0]) == 1.0
    # of |±1±2±4| the values 7, 7, 5, 5 are at least 5
    assert sign_flip_p([-1.0, 2.0, 4.0]) == 4 / 8
    assert sign_flip_p([0.1] * 10) == 2 / 2**10


def test_random_sign_flips_agree_with_all_of_them():
    values = np.random.default_rng(1).normal(0.4, 1.0, 17)
    signs = 1 - 2 * ((np.arange(2**17)[:, None] >> np.arange(17)) & 1)
    exact = np.mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-9)
    assert sign_flip_p(values) == pytest.approx(exact, abs=0.01)


def test_holm_multiplies_by_the_number_of_remaining_comparisons():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
