"""Losses per token. All take the same three arrays, so that the update knows none by name."""

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
      ratio_BT: p_policy / p_old of the token.
      is_clipped_BT: bool, the clip removed the gradient of this token.
    """

    loss_BT: jax.Array
    ratio_BT: jax.Array
    is_clipped_BT: jax.Array


def clipped_surrogate(
    logprob_BT: jax.Array,
    old_logprob_BT: jax.Array,
    advantage_BT: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """PPO's pessimistic surrogate with separate bounds: eq. 7 of arXiv:1707.06347.

    loss = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A). A larger `clip_high`
    is "clip-higher" of arXiv:2503.14476.

    Args:
      logprob_BT: under the policy that is trained.
      old_logprob_BT: under the policy that sampled; a constant.
      advantage_BT: a constant.
      clip_low: how far below 1 the ratio may fall while A < 0 still has a gradient.
      clip_high: how far above 1 it may rise while A > 0 still has one.
    """
    chex.assert_rank(logprob_BT, 2)
    chex.assert_equal_shape([logprob_BT, old_logprob_BT, advantage_BT])
    chex.assert_type([logprob_BT, old_logprob_BT, advantage_BT], [float] * 3)
    if not 0.0 <= clip_low < 1.0 or clip_high < 0.0:
        raise ValueError(
            "clipped_surrogate needs 0 <= clip_low < 1 and clip_high >= 0; "
            f"got clip_low={clip_low}, clip_high={clip_high}"
        )
    ratio_BT = jnp.exp(logprob_BT - old_logprob_BT)
    clipped_BT = jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high)
    is_clipped_BT = jnp.where(
        advantage_BT > 0, ratio_BT > 1.0 + clip_high, ratio_BT < 1.0 - clip_low
    ) & (advantage_BT != 0)
    # Selecting by is_clipped is the min above, with no ambiguous gradient at a tie.
    surrogate_BT = jnp.where(is_clipped_BT, clipped_BT, ratio_BT) * advantage_BT
    return TokenLoss(-surrogate_BT, ratio_BT, is_clipped_BT)


def negative_log_likelihood(
    logprob_BT: jax.Array, old_logprob_BT: jax.Array, advantage_BT: jax.Array
) -> TokenLoss:
    """Supervised loss: -logprob. The other two arrays are not read; weights choose the tokens."""
    chex.assert_rank(logprob_BT, 2)
    chex.assert_equal_shape([logprob_BT, old_logprob_BT, advantage_BT])
    return TokenLoss(-logprob_BT, jnp.ones_like(logprob_BT), jnp.zeros(logprob_BT.shape, jnp.bool_))
