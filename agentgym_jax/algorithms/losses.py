"""Losses per token. All take the same four arrays, so that the update knows none by name.

Arrays are packed rows `[B, T]`. `sequence_BT` tells which trained tokens of a row belong to one
episode: equal positive numbers do; 0 is everything that is not trained.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TokenLoss:
    """One loss per token, and what a log wants to know about it.

    Attributes:
      loss_BT: to be minimised; not weighted, not masked.
      ratio_BT: p_policy / p_old of the token, or of its episode if the loss compares episodes.
      is_clipped_BT: bool, the clip removed or bounded the gradient of this token.
    """

    loss_BT: jax.Array
    ratio_BT: jax.Array
    is_clipped_BT: jax.Array


def _check(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    sequence_BT: jax.Array,
) -> None:
    chex.assert_rank(logprob_BT, 2)
    chex.assert_equal_shape([logprob_BT, old_logprob_BT, advantage_BT, sequence_BT])
    chex.assert_type(
        [logprob_BT, old_logprob_BT, advantage_BT, sequence_BT], [float, float, float, int]
    )


def _check_clip(who: str, clip_low: float, clip_high: float) -> None:
    if not 0.0 <= clip_low < 1.0 or clip_high < 0.0:
        raise ValueError(
            f"{who} needs 0 <= clip_low < 1 and clip_high >= 0; "
            f"got clip_low={clip_low}, clip_high={clip_high}"
        )


def _pessimistic(
    ratio_BT: jax.Array, advantage_BT: jax.Array, clip_low: float, clip_high: float
) -> TokenLoss:
    """-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)."""
    clipped_BT = jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high)
    is_clipped_BT = jnp.where(
        advantage_BT > 0, ratio_BT > 1.0 + clip_high, ratio_BT < 1.0 - clip_low
    ) & (advantage_BT != 0)
    # Selecting by is_clipped is the min above, with no ambiguous gradient at a tie.
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
    """PPO's pessimistic surrogate with separate bounds: eq. 7 of arXiv:1707.06347.

    loss = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A). A larger `clip_high`
    is "clip-higher": eq. 8 of arXiv:2503.14476.

    For A < 0 this loss grows without bound with the ratio. `dual_clip` bounds it: loss <=
    -dual_clip * A ("dual clip", arXiv:1912.09729). Beyond the bound the token has no gradient.

    Args:
      logprob_BT: under the policy that is trained.
      old_logprob_BT: under the policy that sampled; a constant.
      advantage_BT: a constant.
      sequence_BT: not read.
      clip_low: how far below 1 the ratio may fall while A < 0 still has a gradient.
      clip_high: how far above 1 it may rise while A > 0 still has one.
      dual_clip: largest ratio that counts while A < 0; above 1 + clip_high. None for no bound.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    _check_clip("clipped_surrogate", clip_low, clip_high)
    if dual_clip is not None and dual_clip <= 1.0 + clip_high:
        raise ValueError(
            f"clipped_surrogate needs dual_clip > 1 + clip_high or None; got dual_clip={dual_clip}, "
            f"clip_high={clip_high}"
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
    """GSPO: the pessimistic surrogate of one ratio per episode; arXiv:2507.18071.

    ratio = exp(mean over the action tokens of the episode of (logprob - old_logprob)), eq. 7: the
    geometric mean of the token ratios, so its bounds are some thousand times narrower. With weights
    that add up to 1 / episodes in each episode (`sequence_mean`) the sum is the objective of eq. 5.

    The gradient of a token is that of GSPO-token (eq. 13 and 14): ratio * advantage * gradient of
    its own log-probability. Where all tokens of an episode have one advantage this is the gradient
    of eq. 5. Where they differ, by turn or by a correction factor, each token keeps its own; the
    gradient of eq. 5 would give every token the mean.

    Args:
      logprob_BT: under the policy that is trained.
      old_logprob_BT: under the policy before the first update of the step; a constant.
      advantage_BT: a constant.
      sequence_BT: which tokens are of one episode.
      clip_low: as in `clipped_surrogate`.
      clip_high: as in `clipped_surrogate`.
    """
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    _check_clip("sequence_surrogate", clip_low, clip_high)
    log_ratio_BT = _sequence_mean(logprob_BT - old_logprob_BT, sequence_BT)
    log_ratio_BT = jax.lax.stop_gradient(log_ratio_BT - logprob_BT) + logprob_BT
    return _pessimistic(jnp.exp(log_ratio_BT), advantage_BT, clip_low, clip_high)


def _sequence_mean(value_BT: jax.Array, sequence_BT: jax.Array) -> jax.Array:
    """Mean over the tokens of the same sequence of the row, at each of them; 0 elsewhere."""
    is_trained_BT = sequence_BT > 0
    segments = sequence_BT.shape[1] + 1  # a row of T tokens has at most T sequences

    def of_row(value_T, sequence_T):
        return jax.ops.segment_sum(value_T, sequence_T, num_segments=segments)[sequence_T]

    total_BT = jax.vmap(of_row)(jnp.where(is_trained_BT, value_BT, 0.0), sequence_BT)
    count_BT = jax.vmap(of_row)(is_trained_BT.astype(value_BT.dtype), sequence_BT)
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
    """CISPO: REINFORCE with a bounded importance weight; eq. 4 and 5 of arXiv:2506.13585.

    loss = -stop(clip(ratio, ratio_low, ratio_high)) * A * logprob. The bound never removes a
    token's gradient, as the pessimistic surrogate does; it only bounds its size.

    Args:
      logprob_BT: under the policy that is trained.
      old_logprob_BT: under the policy that sampled; a constant.
      advantage_BT: a constant.
      sequence_BT: not read.
      ratio_low: smallest weight; 0 for none, as published.
      ratio_high: largest weight.
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
    """REINFORCE: -A * logprob; no ratio and no bound, for one update per step.

    Args:
      logprob_BT: under the policy that is trained.
      old_logprob_BT: under the policy that sampled; only measured.
      advantage_BT: a constant.
      sequence_BT: not read.
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
    """Supervised loss: -logprob. The other arrays are not read; weights choose the tokens."""
    _check(logprob_BT, old_logprob_BT, advantage_BT, sequence_BT)
    return TokenLoss(-logprob_BT, jnp.ones_like(logprob_BT), jnp.zeros(logprob_BT.shape, jnp.bool_))


def clipped_value_loss(
    value_BT: jax.Array, old_value_BT: jax.Array, return_BT: jax.Array, *, clip: float
) -> tuple[jax.Array, jax.Array]:
    """Half the squared error of a critic, pessimistic about moves of more than `clip`.

    loss = max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2) / 2: PPO's clip applied to
    values, as in the code that was released with arXiv:1707.06347; the paper has the square alone.

    Args:
      value_BT: of the critic that is trained.
      old_value_BT: of the critic at the start of the step; a constant.
      return_BT: what the value should be; a constant.
      clip: in the unit of the return; 0 for none.

    Returns:
      loss_BT, and is_clipped_BT: the clip removed the gradient of this token.
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
