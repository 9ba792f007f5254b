import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import losses
from tests.builders import policy_tokens

pytestmark = pytest.mark.usefixtures("compiled_fastest")


@functools.partial(jax.jit, static_argnames=("low", "high"))
def surrogate_with_gradient(logprob, advantage, *, low, high):
    def value(logprob):
        tokens = policy_tokens(logprob, jnp.zeros((1, 1)), advantage, jnp.ones((1, 1), int))
        loss = losses.clipped_surrogate(tokens, clip_low=low, clip_high=high)
        return jnp.sum(loss.loss_BT), loss

    return jax.value_and_grad(value, has_aux=True)(logprob)


def surrogate(ratio, advantage, low=0.2, high=0.3):
    """Returns the loss of one token, its gradient for the log-probability, and the clip flag."""
    (total, loss), gradient = surrogate_with_gradient(
        np.full((1, 1), np.log(ratio), np.float32),
        np.full((1, 1), advantage, np.float32),
        low=low,
        high=high,
    )
    return float(total), float(gradient[0, 0]), bool(loss.is_clipped_BT[0, 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "is_clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),  # ratio 1: the gradient is -A * grad log p
        (1.25, 2.0, -2.5, -2.5, False),  # the ratio is within 1 + 0.3
        (1.5, 2.0, -2.6, 0.0, True),  # good action, already more than 30 % likelier
        # good action, less likely: its probability is raised without a limit
        (0.5, 2.0, -1.0, -1.0, False),
        (0.5, -2.0, 1.6, 0.0, True),  # bad action, already more than 20 % less likely
        # bad action, likelier: its probability is lowered without a limit
        (1.5, -2.0, 3.0, 3.0, False),
        (1.5, 0.0, 0.0, 0.0, False),
        (0.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_the_surrogate_matches_hand_computed_values(ratio, advantage, loss, gradient, is_clipped):
    np.testing.assert_allclose(
        surrogate(ratio, advantage), (loss, gradient, is_clipped), rtol=1e-6, atol=1e-7
    )


ONE_TOKEN = policy_tokens(*[jnp.zeros((1, 1))] * 3, jnp.ones((1, 1), int))
CLIPPED = (
    losses.clipped_surrogate,
    losses.sequence_surrogate,
)


@pytest.mark.parametrize("loss", CLIPPED)
@pytest.mark.parametrize("bounds", [(-0.1, 0.2), (1.0, 0.2), (0.2, -0.1)])
def test_invalid_clip_bounds_are_refused(loss, bounds):
    with pytest.raises(ValueError, match="clip_low"):
        loss(ONE_TOKEN, clip_low=bounds[0], clip_high=bounds[1])


@pytest.mark.parametrize("bounds", [(-0.1, 2.0), (1.1, 2.0), (0.0, 0.9)])
def test_invalid_ratio_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="ratio_low"):
        losses.clipped_weight(ONE_TOKEN, ratio_low=bounds[0], ratio_high=bounds[1])


# A row of two episodes with two and three trained tokens, separated by an untrained token.
SEQUENCE = jnp.array([[1, 1, 0, 2, 2, 2]])
LOG_RATIO = jnp.log(jnp.array([[1.1, 1.3, 9.0, 0.5, 1.0, 2.0]]))
# Geometric means of the ratios: sqrt(1.43) and 1.
MEANS = np.array([[1.43**0.5] * 2 + [1.0] + [1.0] * 3])


@functools.cache
def with_gradient(loss, options):
    def total(logprob_BT, advantage_BT):
        tokens = policy_tokens(logprob_BT, jnp.zeros((1, 6)), advantage_BT, SEQUENCE)
        found = loss(tokens, **dict(options))
        return jnp.sum(jnp.where(SEQUENCE > 0, found.loss_BT, 0.0)), found

    return jax.jit(jax.value_and_grad(total, has_aux=True))


def gradient(loss, advantage_BT, **options):
    """Returns the loss, summed over trained tokens, and its gradient for each log-probability."""
    compiled = with_gradient(loss, tuple(options.items()))
    (_, found), gradient_BT = compiled(LOG_RATIO, advantage_BT)
    return found, np.asarray(gradient_BT)


def test_gspo_uses_the_geometric_mean_of_the_token_ratios_of_an_episode():
    advantage_BT = jnp.array([[2.0, 2.0, 0.0, -1.0, -1.0, -1.0]])
    found, gradient_BT = gradient(
        losses.sequence_surrogate, advantage_BT, clip_low=0.1, clip_high=0.3
    )
    np.testing.assert_allclose(found.ratio_BT, MEANS, rtol=1e-6)
    np.testing.assert_allclose(found.loss_BT, -MEANS * advantage_BT, rtol=1e-6)
    # This is the gradient of sum(s * A) over the n tokens of an episode, where
    # d s / d logprob is s / n.
    expected = -MEANS * np.array([[2.0, 2.0, 0.0, -1.0, -1.0, -1.0]])
    np.testing.assert_allclose(gradient_BT, expected, rtol=1e-6)


def test_the_dual_clip_bounds_the_loss_of_a_bad_token_with_a_large_ratio():
    # ratios 2, 4 and 4; advantages -1, -1 and 1; clip 0.2, bound 3
    ratio_BT, advantage_BT = jnp.array([[2.0, 4.0, 4.0]]), jnp.array([[-1.0, -1.0, 1.0]])

    def total(logprob_BT, dual_clip):
        tokens = policy_tokens(logprob_BT, jnp.zeros((1, 3)), advantage_BT, jnp.ones((1, 3), int))
        found = losses.clipped_surrogate(tokens, clip_low=0.2, clip_high=0.2, dual_clip=dual_clip)
        return jnp.sum(found.loss_BT), found

    compiled = jax.jit(jax.value_and_grad(total, has_aux=True), static_argnums=1)
    (_, found), gradient_BT = compiled(jnp.log(ratio_BT), 3.0)
    np.testing.assert_allclose(found.loss_BT, [[2.0, 3.0, -1.2]], rtol=1e-6)
    np.testing.assert_allclose(gradient_BT, [[2.0, 0.0, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(found.is_clipped_BT, [[False, True, True]])
    (_, found), gradient_BT = compiled(jnp.log(ratio_BT), None)
    np.testing.assert_allclose(found.loss_BT, [[2.0, 4.0, -1.2]], rtol=1e-6)
    np.testing.assert_allclose(gradient_BT, [[2.0, 4.0, 0.0]], rtol=1e-6)
    with pytest.raises(ValueError, match="dual_clip > 1 . clip_high"):
        total(jnp.log(ratio_BT), 1.1)


def test_cispo_keeps_the_gradient_of_every_token():
    advantage_BT = jnp.array([[2.0, 2.0, 0.0, -1.0, 0.0, 1.0]])
    found, gradient_BT = gradient(
        losses.clipped_weight, advantage_BT, ratio_low=0.75, ratio_high=1.2
    )
    # min(max(ratio, 0.75), 1.2) * A; the gradient does not go through the weight
    np.testing.assert_allclose(gradient_BT, [[-2.2, -2.4, 0, 0.75, 0, -1.2]], rtol=1e-6)
    np.testing.assert_allclose(
        found.loss_BT[0, [0, 1, 3, 5]], (gradient_BT * LOG_RATIO)[0, [0, 1, 3, 5]], rtol=1e-6
    )
    np.testing.assert_array_equal(found.is_clipped_BT, [[False, True, False, True, False, True]])


def measure(loss, ratios, advantages, *, marked=(), sampler=0.0, **options):
    """Returns loss, gradient and clip flags of one episode; the old log-probabilities are 0."""
    n = len(ratios)
    others = dict(
        marked_BT=jnp.isin(jnp.arange(n), jnp.array([-1, *marked]))[None],
        sampler_logprob_BT=jnp.full((1, n), sampler),
    )

    def total(logprob_BT):
        tokens = policy_tokens(
            logprob_BT,
            jnp.zeros((1, n)),
            jnp.array([advantages]),
            jnp.ones((1, n), int),
            **others,
        )
        found = loss(tokens, **options)
        return jnp.sum(found.loss_BT), found

    logprob_BT = jnp.log(jnp.array([ratios]))
    (_, found), gradient_BT = jax.jit(jax.value_and_grad(total, has_aux=True))(logprob_BT)
    return found.loss_BT[0], gradient_BT[0], found.is_clipped_BT[0].tolist()


def test_sapo_lowers_the_gradient_of_far_tokens_smoothly():
    loss, gradient, clipped = measure(
        losses.soft_gate,
        [1.0, 1.5, 0.5, 4.0],
        [2.0, 2.0, -1.0, -1.0],
        tau_positive=1.0,
        tau_negative=2.0,
    )
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    gates = np.array([sigmoid(0.0), sigmoid(0.5), sigmoid(-1.0), sigmoid(6.0)])
    np.testing.assert_allclose(loss, [-4.0, -8 * gates[1], 2 * gates[2], 2 * gates[3]], rtol=1e-6)
    # the gradient of -ratio * A, times 4 s (1 - s)
    weights = 4 * gates * (1 - gates) * np.array([1.0, 1.5, 0.5, 4.0])
    np.testing.assert_allclose(gradient, weights * np.array([-2.0, -2.0, 1.0, 1.0]), rtol=1e-4)
    assert weights[0] == 1.0 and not any(clipped)


def test_clip_cov_removes_the_gradient_of_marked_tokens():
    loss, gradient, clipped = measure(
        losses.covariance_clip,
        [1.5, 1.5, 2.5, 2.5],
        [1.0, 1.0, 1.0, -1.0],
        marked=[1],
        ratio_high=2.0,
    )
    np.testing.assert_allclose(loss, [-1.5, 0.0, -2.0, 2.5], rtol=1e-6)
    np.testing.assert_allclose(gradient, [-1.5, 0.0, 0.0, 2.5], rtol=1e-6)
    assert clipped == [False, True, True, False]


def test_kl_cov_holds_marked_tokens_near_the_old_policy():
    options = dict(marked=[1, 2], penalty=0.5)
    loss, gradient, clipped = measure(
        losses.covariance_penalty, [2.0, 2.0, 0.5], [1.0, 1.0, 1.0], **options
    )
    np.testing.assert_allclose(loss, [-2.0, -2.0 + 0.5 * np.log(2), -0.5 + 0.5 * np.log(2)], 1e-6)
    np.testing.assert_allclose(gradient, [-2.0, -1.5, -1.0], rtol=1e-6)
    assert not any(clipped)


def test_bad_episodes_that_the_policy_has_left_are_masked():
    masked = losses.mask_loss(
        losses.policy_gradient, functools.partial(losses.negative_sequence_mask, delta=0.1)
    )
    # the mean of log(p_sampler / p_policy) is log(2) / 2, with and without tokens of A > 0
    _, gradient, clipped = measure(masked, [0.5, 1.0], [-1.0, 2.0])
    np.testing.assert_allclose(gradient, [0.0, -2.0])
    assert clipped == [True, False]
    for ratios, sampler in [([2.0, 1.0], 0.0), ([0.95, 0.95], 0.0), ([0.5, 0.5], -1.0)]:
        _, gradient, clipped = measure(masked, ratios, [-1.0, -1.0], sampler=sampler)
        np.testing.assert_allclose(gradient, [1.0, 1.0])
        assert not any(clipped)


@pytest.mark.parametrize(
    ("loss", "options", "name"),
    [
        (losses.soft_gate, dict(tau_positive=0.0, tau_negative=1.0), "tau_positive"),
        (losses.soft_gate, dict(tau_positive=1.0, tau_negative=-1.0), "tau_negative"),
        (losses.covariance_clip, dict(ratio_high=1.0), "ratio_high"),
        (losses.covariance_penalty, dict(penalty=0.0), "penalty"),
        (losses.negative_sequence_mask, dict(delta=0.0), "delta"),
    ],
)
def test_options_out_of_range_are_refused(loss, options, name):
    with pytest.raises(ValueError, match=name):
        loss(ONE_TOKEN, **options)


def test_reinforce_ignores_the_ratio():
    advantage_BT = jnp.array([[2.0, 2.0, 0.0, -1.0, 0.0, 1.0]])
    found, gradient_BT = gradient(losses.policy_gradient, advantage_BT)
    np.testing.assert_array_equal(gradient_BT, -advantage_BT)
    np.testing.assert_allclose(found.ratio_BT, jnp.exp(LOG_RATIO), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *[(loss, dict(clip_low=0.2, clip_high=0.2)) for loss in CLIPPED],
        (losses.clipped_weight, dict(ratio_low=0.0, ratio_high=5.0)),
        (losses.policy_gradient, {}),
        (losses.soft_gate, dict(tau_positive=1.0, tau_negative=1.05)),
        (losses.covariance_clip, dict(ratio_high=2.0)),
    ],
)
def test_scaling_the_advantage_scales_the_gradient(loss, options):
    """Checks that a correction factor on the advantages also scales the gradient."""
    advantage_BT = jnp.array([[2.0, 2.0, 0.0, -1.0, -1.0, -1.0]])
    _, plain = gradient(loss, advantage_BT, **options)
    _, scaled = gradient(loss, 0.25 * advantage_BT, **options)
    np.testing.assert_allclose(scaled, 0.25 * plain, rtol=1e-6)


def test_the_supervised_loss_reads_only_the_log_probability():
    logprob_BT = jnp.array([[-1.0, -2.0]])
    nan_BT = logprob_BT * jnp.nan
    found = losses.negative_log_likelihood(
        policy_tokens(logprob_BT, nan_BT, nan_BT, jnp.zeros((1, 2), int))
    )
    np.testing.assert_array_equal(found.loss_BT, [[1.0, 2.0]])
    np.testing.assert_array_equal(found.ratio_BT, [[1.0, 1.0]])
    assert not found.is_clipped_BT.any()


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *[(loss, dict(clip_low=0.2, clip_high=0.2)) for loss in CLIPPED],
        (losses.clipped_weight, dict(ratio_low=0.0, ratio_high=1.2)),
        (losses.policy_gradient, {}),
        (losses.soft_gate, dict(tau_positive=1.0, tau_negative=1.05)),
        (losses.covariance_clip, dict(ratio_high=2.0)),
        (losses.covariance_penalty, dict(penalty=1.0)),
        (
            losses.mask_loss(
                losses.policy_gradient, functools.partial(losses.negative_sequence_mask, delta=0.01)
            ),
            {},
        ),
    ],
)
def test_packing_leaves_the_gradient_of_every_loss_unchanged(loss, options):
    """Checks that two episodes in one row have the same gradient as one episode per row."""
    rng = np.random.default_rng(0)
    logprob, old = rng.normal(-2.0, 0.3, (2, 7)).astype(np.float32)
    sequence = np.array([1, 1, 0, 1, 2, 0, 2], np.int32)
    advantage = np.where(sequence == 1, 1.5, -0.5).astype(np.float32)

    def apart(values):
        first = np.where(np.arange(7) < 4, values, 0)
        second = np.roll(np.where(np.arange(7) >= 4, values, 0), -2)
        return np.stack([first, second])

    def gradient_of(rows, sequence_BT):
        def total(logprob_BT):
            tokens = policy_tokens(logprob_BT, rows[1], rows[2], sequence_BT)
            found = loss(tokens, **options)
            return jnp.sum(jnp.where(sequence_BT > 0, found.loss_BT, 0.0))

        return np.asarray(jax.jit(jax.grad(total))(rows[0]))

    together = gradient_of([x[None] for x in (logprob, old, advantage)], sequence[None])
    alone = gradient_of([apart(x) for x in (logprob, old, advantage)], apart(sequence))
    assert together.any()
    np.testing.assert_allclose(alone, apart(together[0]), rtol=1e-6)
