"""Sampling from logits with exact top-k and top-p, without sorting.

A sample does not depend on its row's position in the batch or on other rows.
"""

from typing import Any

import chex
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.models.token_masks import mask_logits, num_words

# Tokens per block of the vocabulary. Searches find the block first, then the token inside it.
_BLOCK = 256


@flax.struct.dataclass
class Draw:
    """Sampled tokens and their log-probabilities."""

    token_B: jax.Array  # int32 [B]
    # float32 [B], at the temperature, before top-k, top-p and min-p
    logprob_B: jax.Array


@flax.struct.dataclass
class Adjustment:
    """Changes of the logits of each row before the temperature, and min-p."""

    bias: jax.Array  # float32 [B, V], added to the logits
    # float32 [B] and bool [B, V]: positive logits of seen tokens are divided by the penalty, others
    # are multiplied; 1 changes nothing
    repetition_penalty: jax.Array
    is_seen: jax.Array
    # float32 [B], least probability of a token that may be sampled, in units of that of the
    # likeliest; 0 allows all
    min_p: jax.Array
    # uint32 [B, words], tokens that may be sampled (models/token_masks.py)
    mask: jax.Array

    @classmethod
    def create(cls, rows: int, vocab_size: int) -> "Adjustment":
        """Creates an adjustment that changes nothing, as NumPy arrays."""
        arrays: dict[str, Any] = dict(
            bias=np.zeros((rows, vocab_size), np.float32),
            repetition_penalty=np.ones(rows, np.float32),
            is_seen=np.zeros((rows, vocab_size), bool),
            min_p=np.zeros(rows, np.float32),
            mask=np.full((rows, num_words(vocab_size)), 2**32 - 1, np.uint32),
        )
        return cls(**arrays)


def adjust(logits_BV: jax.Array, adjustment: Adjustment) -> jax.Array:
    """Returns logits with the repetition penalty (Keskar et al. 2019, arXiv:1909.05858), bias and mask."""
    chex.assert_equal_shape([logits_BV, adjustment.bias, adjustment.is_seen])
    penalty_B1 = adjustment.repetition_penalty[:, None]
    penalised_BV = jnp.where(logits_BV > 0.0, logits_BV / penalty_B1, logits_BV * penalty_B1)
    logits_BV = jnp.where(adjustment.is_seen, penalised_BV, logits_BV) + adjustment.bias
    return mask_logits(logits_BV, adjustment.mask)


def draw(
    logits_BV: jax.Array,
    uniform_B: jax.Array,
    temperature_B: jax.Array,
    top_k_B: jax.Array | None = None,
    top_p_B: jax.Array | None = None,
    min_p_B: jax.Array | None = None,
) -> Draw:
    """Samples one token per row by inverting the cumulative distribution.

    Args:
      logits_BV: float32 logits.
      uniform_B: One number in [0, 1) per row.
      temperature_B: Sampling temperature. 0 is greedy, with log-probabilities at temperature 1.
      top_k_B: Number of likeliest tokens to keep; 0 keeps all. Tokens tied with the k-th are kept.
      top_p_B: Probability mass of the smallest set of likeliest tokens to keep, after top-k; 1
        keeps all. Tokens tied with the least likely kept token are kept. Without `top_k_B` and
        `top_p_B` all tokens are kept.
      min_p_B: Least probability of a token to keep, before top-k, in units of that of the likeliest
        token; 0 keeps all.
    """
    chex.assert_rank([logits_BV, uniform_B, temperature_B], [2, 1, 1])
    is_greedy_B = temperature_B <= 0.0
    scale_B = jnp.where(is_greedy_B, 1.0, temperature_B)
    scaled_BV = logits_BV / scale_B[:, None]
    peak_B1 = jnp.max(scaled_BV, axis=-1, keepdims=True)
    mass_BV = jnp.exp(scaled_BV - peak_B1)
    log_total_B = jnp.log(jnp.sum(mass_BV, axis=-1)) + peak_B1[:, 0]

    kept_BV = mass_BV
    if min_p_B is not None:
        # The mass of the likeliest token is 1.
        kept_BV = jnp.where(mass_BV >= min_p_B[:, None], mass_BV, 0.0)
    if top_k_B is not None and top_p_B is not None:
        chex.assert_rank([top_k_B, top_p_B], 1)
        is_cut_B = ~is_greedy_B & ((top_k_B > 0) | (top_p_B < 1.0))
        allowed_BV = kept_BV
        kept_BV = jax.lax.cond(
            jnp.any(is_cut_B),
            lambda: _keep_likeliest(allowed_BV, top_k_B, top_p_B),
            lambda: allowed_BV,
        )
    sampled_B = _invert_cdf(kept_BV, uniform_B)
    token_B = jnp.where(is_greedy_B, _argmax(scaled_BV), sampled_B)
    logprob_B = jnp.take_along_axis(scaled_BV, token_B[:, None], axis=-1)[:, 0] - log_total_B
    return Draw(token_B=token_B, logprob_B=logprob_B)


def _blocks(values_BV: jax.Array, fill: float) -> jax.Array:
    """Reshapes [B, V] to [B, V / block, block]; the end is padded with `fill`."""
    B, V = values_BV.shape
    padded_BV = jnp.pad(values_BV, ((0, 0), (0, -V % _BLOCK)), constant_values=fill)
    return padded_BV.reshape(B, -1, _BLOCK)


def _argmax(values_BV: jax.Array) -> jax.Array:
    """Returns the first index of the maximum, in two passes because XLA's argmax is slow on CPU."""
    blocks_BMC = _blocks(values_BV, -jnp.inf)
    block_B = jnp.argmax(jnp.max(blocks_BMC, axis=-1), axis=-1)
    inner_BC = jnp.take_along_axis(blocks_BMC, block_B[:, None, None], axis=1)[:, 0]
    return (block_B * _BLOCK + jnp.argmax(inner_BC, axis=-1)).astype(jnp.int32)


def _invert_cdf(mass_BV: jax.Array, uniform_B: jax.Array) -> jax.Array:
    """Returns the smallest token that has mass and a cumulative mass above `uniform * total`."""
    blocks_BMC = _blocks(mass_BV, 0.0)
    cumulative_BM = jnp.cumsum(jnp.sum(blocks_BMC, axis=-1), axis=-1)
    target_B = uniform_B * cumulative_BM[:, -1]
    is_passed_BM = cumulative_BM <= target_B[:, None]
    # Rounding can move `uniform * total` beyond the last block with mass, so the index is clipped.
    has_mass_BM = jnp.max(blocks_BMC, axis=-1) > 0.0
    block_B = jnp.minimum(jnp.sum(is_passed_BM, axis=-1), _last_true(has_mass_BM))
    before_B = jnp.where(
        block_B > 0,
        jnp.take_along_axis(cumulative_BM, jnp.maximum(block_B - 1, 0)[:, None], axis=-1)[:, 0],
        0.0,
    )
    inner_BC = jnp.take_along_axis(blocks_BMC, block_B[:, None, None], axis=1)[:, 0]
    is_passed_BC = jnp.cumsum(inner_BC, axis=-1) <= (target_B - before_B)[:, None]
    inner_B = jnp.minimum(jnp.sum(is_passed_BC, axis=-1), _last_true(inner_BC > 0.0))
    # The two cumulative sums round differently, so the index can be that of a token without mass at
    # the left edge of the block.
    first_B = jnp.argmax(inner_BC > 0.0, axis=-1)
    return (block_B * _BLOCK + jnp.maximum(inner_B, first_B)).astype(jnp.int32)


def _last_true(mask_BN: jax.Array) -> jax.Array:
    index_N = jnp.arange(mask_BN.shape[-1])
    return jnp.max(jnp.where(mask_BN, index_N[None, :], 0), axis=-1)


def _keep_likeliest(mass_BV: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array) -> jax.Array:
    """Sets the mass of all tokens except the top-k to zero, then that of all except the top-p.

    Non-negative floats have the same order as their bits, so a bitwise search finds each threshold
    in 31 passes.
    """
    bits_BV = jax.lax.bitcast_convert_type(mass_BV, jnp.int32)

    def largest_threshold(is_enough):
        def set_bit(i, threshold_B):
            trial_B = threshold_B | (jnp.int32(1) << (30 - i))
            return jnp.where(is_enough(bits_BV >= trial_B[:, None]), trial_B, threshold_B)

        return jax.lax.fori_loop(0, 31, set_bit, jnp.zeros_like(top_k_B))

    k_threshold_B = largest_threshold(lambda kept_BV: jnp.sum(kept_BV, axis=-1) >= top_k_B)
    k_threshold_B = jnp.where(top_k_B > 0, k_threshold_B, 0)
    mass_BV = jnp.where(bits_BV >= k_threshold_B[:, None], mass_BV, 0.0)
    total_B = jnp.sum(mass_BV, axis=-1)

    def reaches_p(kept_BV):
        return jnp.sum(jnp.where(kept_BV, mass_BV, 0.0), axis=-1) >= top_p_B * total_B

    p_threshold_B = jnp.where(top_p_B < 1.0, largest_threshold(reaches_p), 0)
    return jnp.where(bits_BV >= p_threshold_B[:, None], mass_BV, 0.0)
