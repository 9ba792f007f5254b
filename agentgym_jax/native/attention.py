"""Attention of one decode step on CPU."""

import jax
import jax.numpy as jnp

from agentgym_jax.native import library, products


def is_fast(q_nTNH: jax.Array, k_LBKSH: jax.Array) -> bool:
    """If `attend_step` may be called, and has been compiled."""
    n, T = q_nTNH.shape[:2]
    return T == 1 and q_nTNH.dtype == _dtype(k_LBKSH) and products.is_for(n, q_nTNH.dtype)


def attend_step(
    q_nNH: jax.Array,
    k_LBKSH: jax.Array,
    v_LBKSH: jax.Array,
    layer: jax.Array | int,
    row_n: jax.Array,
    position_n: jax.Array,
) -> jax.Array:
    """Attention of one new token of each row to the slots of its row, up to its own position.

    It reads what a row has in the cache and no more, and a row has the same bits whatever is beside it.

    Args:
      q_nNH: queries, rotated.
      k_LBKSH: key cache that already holds the new tokens; float32, or
        the bits of bfloat16.
      v_LBKSH: value cache.
      layer: which layer of the cache.
      row_n: cache row of each query.
      position_n: slot of each query; one outside [0, S) marks padding, whose result is 0.

    Returns:
      [n, N, H], type of the queries.
    """
    H = q_nNH.shape[-1]
    result = jax.ShapeDtypeStruct(q_nNH.shape, jnp.float32)
    attend = library.call("agentgym_decode_attention", _dtype(k_LBKSH), result)
    numbers = (jnp.asarray(x, jnp.int32) for x in (layer, row_n, position_n))
    out_nNH = attend(q_nNH.astype(jnp.float32) * H**-0.5, k_LBKSH, v_LBKSH, *numbers)
    return out_nNH.astype(q_nNH.dtype)


def _dtype(cache_LBKSH: jax.Array):
    return jnp.bfloat16 if cache_LBKSH.dtype == jnp.uint16 else cache_LBKSH.dtype
