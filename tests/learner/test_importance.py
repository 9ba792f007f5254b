import numpy as np
import pytest

from agentgym_jax.learner import importance

# Episode of each token in two rows; -1 marks the two tokens that were not sampled.
SEQUENCE = np.array([[0, 0, -1, 1], [1, 2, 2, -1]])
LOG_RATIO = np.log([[1.5, 4.0, 9.0, 0.5], [0.5, 2.0, 0.5, np.e]])
SAMPLER = np.full(SEQUENCE.shape, -2.0)


def factor(correction, **options):
    return correction(SAMPLER + LOG_RATIO, SAMPLER, SEQUENCE, **options)


def test_weights_are_only_truncated_from_above():
    found = factor(importance.truncated, cap=2.0)
    np.testing.assert_allclose(found, [[1.5, 2.0, 0, 0.5], [0.5, 2.0, 0.5, 0]], rtol=1e-6)
    assert found.dtype == np.float32


def test_an_overflowing_weight_becomes_the_cap():
    found = importance.truncated(np.array([0.0]), np.array([-2000.0]), np.array([0]), cap=3.0)
    np.testing.assert_allclose(found, [3.0], rtol=1e-6)


def test_an_episode_is_masked_by_the_geometric_mean_over_all_its_tokens():
    # the geometric means of the three episodes are sqrt(6), 1/2 (over both rows) and 1
    found = factor(importance.sequence_mask, low=0.4, high=2.0)
    np.testing.assert_array_equal(found, [[0, 0, 0, 1], [1, 1, 1, 0]])
    found = factor(importance.sequence_mask, low=0.6, high=3.0)
    np.testing.assert_array_equal(found, [[1, 1, 0, 0], [0, 1, 1, 0]])


def test_the_ratio_of_an_episode_is_truncated_as_a_whole():
    # the products of the three episodes are 6, 1/4 and 1
    found = factor(importance.sequence_truncated, cap=2.0)
    np.testing.assert_allclose(found, [[2, 2, 0, 0.25], [0.25, 1, 1, 0]], rtol=1e-6)


def test_icepop_removes_tokens_whose_ratio_is_far_from_one():
    found = factor(importance.token_mask, low=0.6, high=2.0)
    np.testing.assert_allclose(found, [[1.5, 0, 0, 0], [0, 2, 0, 0]], rtol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("correction", "options"),
    [
        (importance.no_correction, {}),
        (importance.sequence_truncated, dict(cap=2.0)),
        (importance.token_mask, dict(low=0.5, high=5.0)),
        (importance.truncated, dict(cap=2.0)),
        (importance.sequence_mask, dict(low=0.5, high=2.0)),
    ],
)
def test_policies_that_agree_need_no_correction(correction, options):
    found = correction(SAMPLER, SAMPLER, SEQUENCE, **options)
    np.testing.assert_array_equal(found, (SEQUENCE >= 0).astype(np.float32))


@pytest.mark.parametrize(
    ("correction", "options"),
    [
        (importance.truncated, dict(cap=0.9)),
        (importance.sequence_truncated, dict(cap=0.9)),
        (importance.token_mask, dict(low=1.1, high=2.0)),
        (importance.token_mask, dict(low=0.5, high=0.9)),
        (importance.sequence_mask, dict(low=1.1, high=2.0)),
        (importance.sequence_mask, dict(low=0.5, high=0.9)),
    ],
)
def test_bounds_that_exclude_a_ratio_of_one_are_refused(correction, options):
    with pytest.raises(ValueError, match="cap|low"):
        factor(correction, **options)
