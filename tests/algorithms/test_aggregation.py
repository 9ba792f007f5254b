import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import aggregation

MASK = jnp.array([[0, 1, 1, 1, 1], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0]], bool)
VALID = jnp.ones(3, bool)


@pytest.mark.parametrize(
    ("mode", "length", "rows"),
    [
        ("token_mean", None, [1 / 7, 1 / 7, 1 / 7]),
        ("sequence_mean", None, [1 / 12, 1 / 3, 1 / 6]),
        ("fixed_length", 10, [1 / 30, 1 / 30, 1 / 30]),
    ],
)
def test_weights_match_hand_computed_values(mode, length, rows):
    found = aggregation.token_weights(MASK, VALID, mode=mode, length=length)
    np.testing.assert_allclose(found, np.where(MASK, np.array(rows)[:, None], 0.0), rtol=1e-6)


@pytest.mark.parametrize("mode", ["token_mean", "sequence_mean"])
def test_weights_of_means_sum_to_one(mode):
    found = aggregation.token_weights(MASK, VALID, mode=mode)
    np.testing.assert_allclose(jnp.sum(found), 1.0, rtol=1e-6)


@pytest.mark.parametrize("mode", aggregation.MODES)
def test_invalid_rows_do_not_count(mode):
    length = 10 if mode == "fixed_length" else None
    alone = aggregation.token_weights(MASK[:2], VALID[:2], mode=mode, length=length)
    valid_B = jnp.array([True, True, False])
    found = aggregation.token_weights(MASK, valid_B, mode=mode, length=length)
    np.testing.assert_array_equal(found[:2], alone)
    assert not np.asarray(found[2]).any()


@pytest.mark.parametrize("mode", aggregation.MODES)
@pytest.mark.parametrize("empty", ["mask", "valid"])
def test_a_batch_without_trained_tokens_has_zero_weights(mode, empty):
    mask_BT = jnp.zeros_like(MASK) if empty == "mask" else MASK
    valid_B = jnp.zeros_like(VALID) if empty == "valid" else VALID
    length = 10 if mode == "fixed_length" else None
    found = aggregation.token_weights(mask_BT, valid_B, mode=mode, length=length)
    np.testing.assert_array_equal(found, np.zeros(MASK.shape))


@pytest.mark.parametrize(("mode", "length"), [("fixed_length", None), ("token_mean", 5)])
def test_fixed_length_requires_a_length_and_other_modes_reject_it(mode, length):
    with pytest.raises(ValueError, match="length"):
        aggregation.token_weights(MASK, VALID, mode=mode, length=length)


def test_the_error_for_an_unknown_mode_lists_the_valid_modes():
    with pytest.raises(ValueError, match="'mean'.*token_mean, sequence_mean, fixed_length"):
        aggregation.token_weights(MASK, VALID, mode="mean")
