"""Losses per token of packed rows. All policy losses are functions of `PolicyTokens`."""

import dataclasses
from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PolicyTokens:
    """Input of a policy loss. Only `logprob_BT` and `entropy_BT` have a gradient."""

    logprob_BT: jax.Array  # under the policy in training
    old_logprob_BT: jax.Array  # under the policy in the denominator of the ratio
    advantage_BT: jax.Array  # 0 on untrained tokens
    # int32, positive and equal in one episode or branch of an episode; 0 on untrained tokens
    sequence_BT: jax.Array
    sampler_logprob_BT: jax.Array  # as sampled
    entropy_BT: jax.Array  # nats, of the distribution that the token was drawn from
    marked_BT: jax.Array  # bool, True for tokens chosen by `learner.marks`

    @property
    def ratio_BT(self) -> jax.Array:
        """Returns p_policy / p_old of every token."""
        return jnp.exp(self.logprob_BT - self.old_logprob_BT)

    def check(self) -> None:
        """Checks shapes and types."""
        floats = [self.logprob_BT, self.old_logprob_BT, self.advantage_BT]
        floats += [self.sampler_logprob_BT, self.entropy_BT]
        arrays = [*floats, self.sequence_BT, self.marked_BT]
        chex.assert_rank(arrays, 2)
        chex.assert_equal_shape(arrays)
        chex.assert_type(arrays, [float] * 5 + [int, bool])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TokenLoss:
    """Loss per token, with quantities to log."""

    loss_BT: jax.Array  # loss to minimise, before weights and masks are applied
    # p_policy / p_old of the token or, in `sequence_surrogate`, of its sequence
    ratio_BT: jax.Array
    is_clipped_BT: jax.Array  # bool, True if the clip removed or bounded the token's gradient


Loss = Callable[[PolicyTokens], TokenLoss]


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
    tokens: PolicyTokens,
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
    tokens.check()
    if dual_clip is not None and dual_clip <= 1.0 + clip_high:
        raise ValueError(
            "clipped_surrogate needs dual_clip > 1 + clip_high or None; "
            f"got dual_clip={dual_clip}, clip_high={clip_high}"
        )
    ratio_BT = tokens.ratio_BT
    loss = _pessimistic(ratio_BT, tokens.advantage_BT, clip_low, clip_high)
    if dual_clip is None:
        return loss
    is_bounded_BT = (tokens.advantage_BT < 0) & (ratio_BT > dual_clip)
    loss_BT = jnp.where(is_bounded_BT, -dual_clip * tokens.advantage_BT, loss.loss_BT)
    return TokenLoss(loss_BT, ratio_BT, loss.is_clipped_BT | is_bounded_BT)


def sequence_surrogate(
    tokens: PolicyTokens,
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
    tokens.check()
    log_ratio_BT = sequence_mean(tokens.logprob_BT - tokens.old_logprob_BT, tokens.sequence_BT)
    log_ratio_BT = jax.lax.stop_gradient(log_ratio_BT - tokens.logprob_BT) + tokens.logprob_BT
    return _pessimistic(jnp.exp(log_ratio_BT), tokens.advantage_BT, clip_low, clip_high)


def sequence_mean(value_BT: jax.Array, sequence_BT: jax.Array) -> jax.Array:
    """Returns at each token the mean over its sequence; 0 off all sequences."""
    is_trained_BT = sequence_BT > 0
    segments = sequence_BT.shape[1] + 1  # a row of T tokens has at most T sequences

    def sum_row(value_T, sequence_T):
        return jax.ops.segment_sum(value_T, sequence_T, num_segments=segments)[sequence_T]

    total_BT = jax.vmap(sum_row)(jnp.where(is_trained_BT, value_BT, 0.0), sequence_BT)
    count_BT = jax.vmap(sum_row)(is_trained_BT.astype(value_BT.dtype), sequence_BT)
    return jnp.where(is_trained_BT, total_BT / jnp.maximum(count_BT, 1.0), 0.0)


def clipped_weight(
    tokens: PolicyTokens,
    *,
    ratio_low: float,
    ratio_high: float,
) -> TokenLoss:
    """Computes the CISPO loss -stop(clip(ratio, ratio_low, ratio_high)) * A * logprob.

    Source: eq. 4 and 5 of arXiv:2506.13585, where `ratio_low` is 0. The bounds limit the gradient
    of a token but never remove it.
    """
    tokens.check()
    if not 0.0 <= ratio_low <= 1.0 <= ratio_high:
        raise ValueError(
            "clipped_weight needs 0 <= ratio_low <= 1 <= ratio_high; "
            f"got ratio_low={ratio_low}, ratio_high={ratio_high}"
        )
    ratio_BT = jax.lax.stop_gradient(tokens.ratio_BT)
    weight_BT = jnp.clip(ratio_BT, ratio_low, ratio_high)
    is_clipped_BT = (weight_BT != ratio_BT) & (tokens.advantage_BT != 0)
    return TokenLoss(-weight_BT * tokens.advantage_BT * tokens.logprob_BT, ratio_BT, is_clipped_BT)


def policy_gradient(tokens: PolicyTokens) -> TokenLoss:
    """Computes the REINFORCE loss -A * logprob.

    The ratio is measured but does not bound the update, so a step must have a single update.
    """
    tokens.check()
    ratio_BT = jax.lax.stop_gradient(tokens.ratio_BT)
    return TokenLoss(
        -tokens.advantage_BT * tokens.logprob_BT, ratio_BT, jnp.zeros(ratio_BT.shape, jnp.bool_)
    )


def negative_log_likelihood(tokens: PolicyTokens) -> TokenLoss:
    """Computes the supervised loss -logprob; the other arrays have no effect."""
    tokens.check()
    return TokenLoss(
        -tokens.logprob_BT,
        jnp.ones_like(tokens.logprob_BT),
        jnp.zeros(tokens.logprob_BT.shape, jnp.bool_),
    )


def soft_gate(tokens: PolicyTokens, *, tau_positive: float, tau_negative: float) -> TokenLoss:
    """Computes the SAPO loss -(4 / tau) * sigmoid(tau * (ratio - 1)) * A.

    Source: the objective of arXiv:2511.20347. tau is `tau_positive` for A > 0, else `tau_negative`.
    The gradient is that of -ratio * A, times a weight that is 1 at ratio 1 and falls smoothly and
    symmetrically to 0 on both sides. No token is clipped.
    """
    tokens.check()
    if tau_positive <= 0.0 or tau_negative <= 0.0:
        raise ValueError(
            "soft_gate needs tau_positive > 0 and tau_negative > 0; "
            f"got tau_positive={tau_positive}, tau_negative={tau_negative}"
        )
    tau_BT = jnp.where(tokens.advantage_BT > 0, tau_positive, tau_negative)
    ratio_BT = tokens.ratio_BT
    gate_BT = 4.0 / tau_BT * jax.nn.sigmoid(tau_BT * (ratio_BT - 1.0))
    return TokenLoss(-gate_BT * tokens.advantage_BT, ratio_BT, jnp.zeros(ratio_BT.shape, jnp.bool_))


def covariance_clip(tokens: PolicyTokens, *, ratio_high: float) -> TokenLoss:
    """Computes the Clip-Cov loss: -min(ratio, ratio_high) * A, and no gradient at marked tokens.

    Source: section 4 of arXiv:2505.22617, where `marks.in_range` marks the tokens. The paper's
    equation has no bound; the released scripts have `ratio_high` 2, which applies if A > 0.
    """
    tokens.check()
    if ratio_high <= 1.0:
        raise ValueError(f"covariance_clip needs ratio_high > 1; got ratio_high={ratio_high}")
    ratio_BT = tokens.ratio_BT
    is_clipped_BT = (tokens.advantage_BT > 0) & (ratio_BT > ratio_high)
    loss_BT = -jnp.where(is_clipped_BT, ratio_high, ratio_BT) * tokens.advantage_BT
    loss_BT = jnp.where(tokens.marked_BT, 0.0, loss_BT)
    return TokenLoss(loss_BT, ratio_BT, is_clipped_BT | tokens.marked_BT)


def covariance_penalty(tokens: PolicyTokens, *, penalty: float) -> TokenLoss:
    """Computes the KL-Cov loss: -ratio * A, plus penalty * |log ratio| at marked tokens.

    Source: section 4 of arXiv:2505.22617, where `marks.largest` marks the tokens. The paper writes
    KL(old || policy) for the penalty; |log ratio| is the estimate in its released code.
    """
    tokens.check()
    if penalty <= 0.0:
        raise ValueError(f"covariance_penalty needs penalty > 0; got penalty={penalty}")
    ratio_BT = tokens.ratio_BT
    distance_BT = jnp.abs(tokens.logprob_BT - tokens.old_logprob_BT)
    loss_BT = -ratio_BT * tokens.advantage_BT
    loss_BT = loss_BT + jnp.where(tokens.marked_BT, penalty * distance_BT, 0.0)
    return TokenLoss(loss_BT, ratio_BT, jnp.zeros(ratio_BT.shape, jnp.bool_))


def negative_sequence_mask(tokens: PolicyTokens, *, delta: float) -> jax.Array:
    """Returns False for tokens with A < 0 in episodes that the policy has left, else True.

    Source: the off-policy sequence mask of DeepSeek-V3.2 (arXiv:2512.02556, section 3.1). An
    episode is masked if the mean of log(p_sampler / p_policy) over its action tokens exceeds
    `delta`, in nats. p_policy changes with every update, so updates within a step count as well.
    """
    tokens.check()
    if delta <= 0.0:
        raise ValueError(f"negative_sequence_mask needs delta > 0; got delta={delta}")
    log_ratio_BT = tokens.sampler_logprob_BT - jax.lax.stop_gradient(tokens.logprob_BT)
    is_far_BT = sequence_mean(log_ratio_BT, tokens.sequence_BT) > delta
    return ~(is_far_BT & (tokens.advantage_BT < 0))


def mask_loss(loss: Loss, mask: Callable[[PolicyTokens], jax.Array]) -> Loss:
    """Returns a loss whose advantages are 0 outside a mask; these tokens count as clipped."""

    def masked(tokens: PolicyTokens) -> TokenLoss:
        is_kept_BT = mask(tokens)
        advantage_BT = jnp.where(is_kept_BT, tokens.advantage_BT, 0.0)
        found = loss(dataclasses.replace(tokens, advantage_BT=advantage_BT))
        return dataclasses.replace(found, is_clipped_BT=found.is_clipped_BT | ~is_kept_BT)

    return masked


# Masks of the loss that depend on the policy in training. Config key `algorithm.correction`.
MASKS: Mapping[str, Callable[..., jax.Array]] = {"negative_sequence_mask": negative_sequence_mask}


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
