import numpy as np
import pytest

from agentgym_jax.learner import marks

LOGPROB = np.array([-1.0, -3.0, -2.0, -2.0])
ADVANTAGE = np.array([2.0, -2.0, 1.0, -1.0])
# The means are -2 and 0, so the covariances are 2, 2, 0 and 0.


def mark(function, logprob=LOGPROB, advantage=ADVANTAGE, seed=0, **options):
    return function(logprob, advantage, np.random.default_rng(seed), **options).tolist()


def test_the_covariance_is_the_product_of_the_deviations_from_the_means():
    np.testing.assert_allclose(marks.covariance(LOGPROB, ADVANTAGE), [2, 2, 0, 0])


def test_the_largest_covariances_are_marked_and_ties_in_order():
    assert mark(marks.largest, share=0.25) == [True, False, False, False]
    assert mark(marks.largest, share=0.5) == [True, True, False, False]
    assert mark(marks.largest, share=0.01) == [True, False, False, False]


def test_random_tokens_in_the_range_are_marked():
    options = dict(share=0.25, low=1.0, high=5.0)
    found = {tuple(mark(marks.in_range, seed=seed, **options)) for seed in range(20)}
    assert found == {(True, False, False, False), (False, True, False, False)}
    assert mark(marks.in_range, seed=3, **options) == mark(marks.in_range, seed=3, **options)


def test_tokens_outside_the_range_are_never_marked():
    assert not any(mark(marks.in_range, share=0.9, low=2.0, high=5.0))
    assert mark(marks.in_range, share=0.9, low=0.5, high=5.0) == [True, True, False, False]
    assert not any(mark(marks.no_marks))


@pytest.mark.parametrize("function", [marks.largest, marks.in_range])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_nothing_or_of_all_is_refused(function, share):
    options = {} if function is marks.largest else dict(low=0.0, high=1.0)
    with pytest.raises(ValueError, match=f"share={share}"):
        mark(function, share=share, **options)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (2.0, 2.0)])
def test_an_empty_range_is_refused(low, high):
    with pytest.raises(ValueError, match="low < high"):
        mark(marks.in_range, share=0.5, low=low, high=high)
