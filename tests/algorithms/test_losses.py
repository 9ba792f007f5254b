import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import losses


def surrogate(ratio, advantage, low=0.2, high=0.3):
    """Loss and gradient with respect to the log-probability, of one token."""

    def value(logprob):
        loss = losses.clipped_surrogate(
            logprob, jnp.zeros((1, 1)), jnp.full((1, 1), advantage), clip_low=low, clip_high=high
        )
        return jnp.sum(loss.loss_BT), loss

    (total, loss), gradient = jax.value_and_grad(value, has_aux=True)(
        jnp.full((1, 1), np.log(ratio), jnp.float32)
    )
    return float(total), float(gradient[0, 0]), bool(loss.is_clipped_BT[0, 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "is_clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),  # at the sampling policy: -A * grad log p
        (1.25, 2.0, -2.5, -2.5, False),  # within 1 + 0.3
        (1.5, 2.0, -2.6, 0.0, True),  # good and already likelier by more than 30 %
        (0.5, 2.0, -1.0, -1.0, False),  # good but less likely: pull back without limit
        (0.5, -2.0, 1.6, 0.0, True),  # bad and already rarer by more than 20 %
        (1.5, -2.0, 3.0, 3.0, False),  # bad and likelier: push down without limit
        (1.5, 0.0, 0.0, 0.0, False),
        (0.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_the_surrogate_by_hand(ratio, advantage, loss, gradient, is_clipped):
    np.testing.assert_allclose(
        surrogate(ratio, advantage), (loss, gradient, is_clipped), rtol=1e-6, atol=1e-7
    )


def test_the_surrogate_is_the_pessimistic_minimum():
    rng = np.random.default_rng(0)
    logprob, old, advantage = rng.normal(size=(3, 8, 50)).astype(np.float32)
    found = losses.clipped_surrogate(logprob, old, advantage, clip_low=0.2, clip_high=0.3)
    ratio = np.exp(logprob - old)
    expected = -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.3) * advantage)
    np.testing.assert_allclose(found.loss_BT, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bounds", [(-0.1, 0.2), (1.0, 0.2), (0.2, -0.1)])
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="clip_low"):
        losses.clipped_surrogate(*[jnp.zeros((1, 1))] * 3, clip_low=bounds[0], clip_high=bounds[1])


def test_the_supervised_loss_reads_only_the_log_probability():
    logprob_BT = jnp.array([[-1.0, -2.0]])
    found = losses.negative_log_likelihood(logprob_BT, logprob_BT * jnp.nan, logprob_BT * jnp.nan)
    np.testing.assert_array_equal(found.loss_BT, [[1.0, 2.0]])
    np.testing.assert_array_equal(found.ratio_BT, [[1.0, 1.0]])
    assert not found.is_clipped_BT.any()
