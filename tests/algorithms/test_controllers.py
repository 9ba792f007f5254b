import math

import pytest

from agentgym_jax.algorithms import controllers


def test_the_moving_average_matches_hand_computed_values():
    average = None
    for value in (1.0, 0.0, None, math.nan, 1.0):
        average = controllers.moving_average(average, value, decay=0.75)
    # the averages are 1, then 3/4, then unchanged without a measurement, then 3/4 * 3/4 + 1/4
    assert average == 0.8125


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_below_zero_or_of_one_is_refused(decay):
    with pytest.raises(ValueError, match="decay"):
        controllers.moving_average(None, 1.0, decay=decay)


@pytest.mark.parametrize(
    ("measured", "factor"),
    [
        (0.1, 1.0),
        (0.11, 1.01),
        (0.09, 0.99),
        (5.0, 1.02),
        (0.0, 0.98),
        (None, 1.0),
        (math.nan, 1.0),
    ],
)
def test_the_coefficient_follows_the_relative_error_clipped_at_a_fifth(measured, factor):
    found = controllers.adaptive_coefficient(0.5, measured, target=0.1, rate=0.1)
    assert found == pytest.approx(0.5 * factor)


def test_a_divergence_inverse_to_the_coefficient_reaches_its_target():
    coef = 1.0
    for _ in range(300):
        coef = controllers.adaptive_coefficient(coef, 0.02 / coef, target=0.1, rate=0.1)
    assert 0.02 / coef == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize(("target", "rate"), [(0.0, 0.1), (0.1, 0.0), (0.1, 5.0)])
def test_an_invalid_target_or_rate_is_refused(target, rate):
    with pytest.raises(ValueError, match="adaptive_coefficient needs"):
        controllers.adaptive_coefficient(1.0, 0.1, target=target, rate=rate)
