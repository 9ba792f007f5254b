"""Losses per token of packed rows.

All policy losses take the same four arrays. `logprob_BT` has the log-probabilities of the policy in
training, `old_logprob_BT` those of the policy in the denominator of the ratio. `old_logprob_BT` and
`advantage_BT` are constants. In `sequence_BT`, trained tokens of one episode share a positive
number; 0 marks untrained tokens.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TokenLoss:
    """Loss per token, with quantities to log."""

    loss_BT: jax.Array  # loss to minimise, before weights and masks are applied
    ratio_BT: jax.Array  # p_policy / p_old of the token or, in `sequence_surrogate`, of its episode
    is_clipped_BT: jax.Array  # bool, True if the clip removed or bounded the token's gradient


def _check(*arrays: jax.Array) -> None:
    chex.assert_rank(arrays, 2)
    chex.assert_equal_shape(arrays)
    chex.assert_type(arrays, [float, float, float, int])


def _pessimistic(
    ratio_BT: jax.Array, advantage_BT: jax.Array, clip_low: float, clip_high: float
) -> TokenLoss:
    """Returns -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)."""
    if not 0.0 <= clip_low < 1.0 or clip_high < 0.0:
        raise ValueError(
            "the clipped surrogate needs 0 <= clip_low < 1 and clip_high >= 0; "
            f"got clip_low={clip_low}, clip_high={clip_high}"
        )
    clipped_BT = jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high)
    is_clipped_BT = jnp.where(
        advantage_BT > 0, ratio_BT > 1.0 + clip_high, ratio_BT < 1.0 - clip_low
    ) & (advantage_BT != 0)
    # selecting by is_clipped equals the min, with a defined gradient at a tie
    surrogate_BT = jnp.where(is_clipped_BT, clipped_BT, ratio_BT) * advantage_BT
    return TokenLoss(-surrogate_BT, ratio_BT, is_clipped_BT)


def clipped_surrogate(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> TokenLoss:
    """Computes PPO's loss -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    Source: eq. 7 of arXiv:1707.06347; eq. 8 of arXiv:2503.14476 for clip_high > clip_low.

    `dual_clip` bounds the loss of tokens with A < 0: loss <= -dual_clip * A (arXiv:1912.09729).
    Such a token has no gradient if its ratio exceeds `dual_clip`, which must be > 1 + clip_high.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    if dual_clip is not None and dual_clip <= 1.0 + clip_high:
        raise ValueError(
            "clipped_surrogate needs dual_clip > 1 + clip_high or None; "
            f"got dual_clip={dual_clip}, clip_high={clip_high}"
        )
    ratio_BT = jnp.exp(logprob_BT - old_logprob_BT)
    loss = _pessimistic(ratio_BT, advantage_BT, clip_low, clip_high)
    if dual_clip is None:
        return loss
    is_bounded_BT = (advantage_BT < 0) & (ratio_BT > dual_clip)
    loss_BT = jnp.where(is_bounded_BT, -dual_clip * advantage_BT, loss.loss_BT)
    return TokenLoss(loss_BT, ratio_BT, loss.is_clipped_BT | is_bounded_BT)


def sequence_surrogate(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """Computes the GSPO loss: the clipped surrogate with one ratio per episode; arXiv:2507.18071.

    ratio = exp(mean of (logprob - old_logprob) over the action tokens of the episode), eq. 7.
    The paper's clip range, 3e-4 and 4e-4, is hundreds of times narrower than for token ratios. With
    the weights of `sequence_mean`, the weighted sum is the negative objective of eq. 5.

    A token's gradient is that of GSPO-token (eq. 13 and 14): -ratio * advantage * gradient of its
    log-probability. The sum is the gradient of eq. 5 if an episode's tokens share one advantage.
    Otherwise each token keeps its advantage, whereas eq. 5 has one advantage per episode.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    log_ratio_BT = _sequence_mean(logprob_BT - old_logprob_BT, sequence_BT)
    log_ratio_BT = jax.lax.stop_gradient(log_ratio_BT - logprob_BT) + logprob_BT
    return _pessimistic(jnp.exp(log_ratio_BT), advantage_BT, clip_low, clip_high)


def _sequence_mean(value_BT: jax.Array, sequence_BT: jax.Array) -> jax.Array:
    """Returns at each token the mean over its sequence; 0 off all sequences."""
    is_trained_BT = sequence_BT > 0
    segments = sequence_BT.shape[1] + 1  # a row of T tokens has at most T sequences

    def sum_row(value_T, sequence_T):
        return jax.ops.segment_sum(value_T, sequence_T, num_segments=segments)[sequence_T]

    total_BT = jax.vmap(sum_row)(jnp.where(is_trained_BT, value_BT, 0.0), sequence_BT)
    count_BT = jax.vmap(sum_row)(is_trained_BT.astype(value_BT.dtype), sequence_BT)
    return jnp.where(is_trained_BT, total_BT / jnp.maximum(count_BT, 1.0), 0.0)


def clipped_weight(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
    *,
    ratio_low: float,
    ratio_high: float,
) -> TokenLoss:
    """Computes the CISPO loss -stop(clip(ratio, ratio_low, ratio_high)) * A * logprob.

    Source: eq. 4 and 5 of arXiv:2506.13585, where `ratio_low` is 0. The bounds limit the gradient
    of a token but never remove it.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    if not 0.0 <= ratio_low <= 1.0 <= ratio_high:
        raise ValueError(
            "clipped_weight needs 0 <= ratio_low <= 1 <= ratio_high; "
            f"got ratio_low={ratio_low}, ratio_high={ratio_high}"
        )
    ratio_BT = jax.lax.stop_gradient(jnp.exp(logprob_BT - old_logprob_BT))
    weight_BT = jnp.clip(ratio_BT, ratio_low, ratio_high)
    is_clipped_BT = (weight_BT != ratio_BT) & (advantage_BT != 0)
    return TokenLoss(-weight_BT * advantage_BT * logprob_BT, ratio_BT, is_clipped_BT)


def policy_gradient(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
) -> TokenLoss:
    """Computes the REINFORCE loss -A * logprob.

    The ratio is measured but does not bound the update, so a step must have a single update.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    ratio_BT = jax.lax.stop_gradient(jnp.exp(logprob_BT - old_logprob_BT))
    return TokenLoss(-advantage_BT * logprob_BT, ratio_BT, jnp.zeros(ratio_BT.shape, jnp.bool_))


def negative_log_likelihood(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
) -> TokenLoss:
    """Computes the supervised loss -logprob; the other arrays have no effect."""
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    return TokenLoss(-logprob_BT, jnp.ones_like(logprob_BT), jnp.zeros(logprob_BT.shape, jnp.bool_))


def clipped_value_loss(
    value_BT: jax.Array, old_value_BT: jax.Array, return_BT: jax.Array, *, clip: float
) -> tuple[jax.Array, jax.Array]:
    """Returns the loss of a critic, and a mask of the tokens whose gradient the clip removed.

    loss = max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2) / 2, as in the code
    released with arXiv:1707.06347; the paper has no clip. `old_value_BT` is the value at the start
    of the step. `clip` has the unit of the return; 0 means no clip.
    """
    chex.assert_rank(value_BT, 2)
    chex.assert_equal_shape([value_BT, old_value_BT, return_BT])
    if clip < 0:
        raise ValueError(f"clipped_value_loss needs clip >= 0; got clip={clip}")
    square_BT = (value_BT - return_BT) ** 2
    if not clip:
        return 0.5 * square_BT, jnp.zeros(square_BT.shape, bool)
    near_BT = jnp.clip(value_BT, old_value_BT - clip, old_value_BT + clip)
    clipped_BT = (near_BT - return_BT) ** 2
    return 0.5 * jnp.maximum(square_BT, clipped_BT), clipped_BT > square_BT
