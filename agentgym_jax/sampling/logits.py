"""From logits to tokens: one uniform number a row, exact top-k and top-p, no sort.

Everything is a function of the row's own logits and its own uniform number, so neither
the position of a row in the batch nor its neighbours can change a draw.
"""

import chex
import flax.struct
import jax
import jax.numpy as jnp

# Width of one block of the two-level search over the vocabulary. Summing and scanning blocks costs
# one pass over V; the search inside one block is negligible.
_BLOCK = 256


@flax.struct.dataclass
class Draw:
    """Sampled tokens and their log-probabilities."""

    token_B: jax.Array  # int32 [B]
    logprob_B: jax.Array  # float32 [B], under the temperature-scaled full distribution


def draw(
    logits_BV: jax.Array,
    uniform_B: jax.Array,
    temperature_B: jax.Array,
    top_k_B: jax.Array,
    top_p_B: jax.Array,
) -> Draw:
    """Samples one token a row by inverting the cumulative distribution.

    Args:
      logits_BV: float32.
      uniform_B: one number in [0, 1) a row.
      temperature_B: 0 means greedy; the log-probability is then that of temperature 1.
      top_k_B: keep the k likeliest tokens; 0 keeps all. Ties with the k-th stay.
      top_p_B: keep the smallest set of likeliest tokens whose mass reaches p, after top-k;
        1 keeps all. Ties with the last stay.

    Returns:
      Tokens, and log-probabilities of the distribution before top-k and top-p: that is
      what a learner recomputes from the logits alone.
    """
    chex.assert_rank([logits_BV, uniform_B, temperature_B, top_k_B, top_p_B], [2, 1, 1, 1, 1])
    is_greedy_B = temperature_B <= 0.0
    scale_B = jnp.where(is_greedy_B, 1.0, temperature_B)
    scaled_BV = logits_BV / scale_B[:, None]
    peak_B1 = jnp.max(scaled_BV, axis=-1, keepdims=True)
    mass_BV = jnp.exp(scaled_BV - peak_B1)
    log_total_B = jnp.log(jnp.sum(mass_BV, axis=-1)) + peak_B1[:, 0]

    is_cut_B = ~is_greedy_B & ((top_k_B > 0) | (top_p_B < 1.0))
    kept_BV = jax.lax.cond(
        jnp.any(is_cut_B),
        lambda: _keep_likeliest(mass_BV, top_k_B, top_p_B),
        lambda: mass_BV,
    )
    sampled_B = _invert_cdf(kept_BV, uniform_B)
    token_B = jnp.where(is_greedy_B, _argmax(scaled_BV), sampled_B)
    logprob_B = jnp.take_along_axis(scaled_BV, token_B[:, None], axis=-1)[:, 0] - log_total_B
    return Draw(token_B=token_B, logprob_B=logprob_B)


def _blocks(values_BV: jax.Array, fill: float) -> jax.Array:
    """[B, V] -> [B, V / block, block], padded at the end."""
    B, V = values_BV.shape
    padded_BV = jnp.pad(values_BV, ((0, 0), (0, -V % _BLOCK)), constant_values=fill)
    return padded_BV.reshape(B, -1, _BLOCK)


def _argmax(values_BV: jax.Array) -> jax.Array:
    """First index of the maximum, in two passes (XLA's argmax over a large axis is slow on CPU)."""
    blocks_BMC = _blocks(values_BV, -jnp.inf)
    block_B = jnp.argmax(jnp.max(blocks_BMC, axis=-1), axis=-1)
    inner_BC = jnp.take_along_axis(blocks_BMC, block_B[:, None, None], axis=1)[:, 0]
    return (block_B * _BLOCK + jnp.argmax(inner_BC, axis=-1)).astype(jnp.int32)


def _invert_cdf(mass_BV: jax.Array, uniform_B: jax.Array) -> jax.Array:
    """Smallest token whose cumulative mass exceeds `uniform * total`; never one without mass."""
    blocks_BMC = _blocks(mass_BV, 0.0)
    cumulative_BM = jnp.cumsum(jnp.sum(blocks_BMC, axis=-1), axis=-1)
    target_B = uniform_B * cumulative_BM[:, -1]
    is_passed_BM = cumulative_BM <= target_B[:, None]
    # Rounding of uniform * total can pass even the last block: stay in the last one with mass.
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
    # The two scans round differently, so a token without mass can be hit at a block's left edge.
    first_B = jnp.argmax(inner_BC > 0.0, axis=-1)
    return (block_B * _BLOCK + jnp.maximum(inner_B, first_B)).astype(jnp.int32)


def _last_true(mask_BN: jax.Array) -> jax.Array:
    index_N = jnp.arange(mask_BN.shape[-1])
    return jnp.max(jnp.where(mask_BN, index_N[None, :], 0), axis=-1)


def _keep_likeliest(mass_BV: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array) -> jax.Array:
    """Zeroes all but the top-k, then all but the top-p tokens.

    The threshold is found bit by bit on the float's own representation (non-negative floats
    order like their bits): 31 counting passes instead of a sort of the vocabulary.
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
