"""Attention of one decode step on CPU."""

import jax
import jax.numpy as jnp

from agentgym_jax.native import library, products


def is_fast(q_nTNH: jax.Array, k_LBKSH: jax.Array) -> bool:
    """Returns True if `attend_step` supports this attention and is faster than XLA."""
    n, T = q_nTNH.shape[:2]
    return T == 1 and q_nTNH.dtype == _dtype(k_LBKSH) and products.supports(n, q_nTNH.dtype)


def attend_step(q_nNH: jax.Array, k_LBKSH, v_LBKSH, layer, row_n, position_n) -> jax.Array:
    """Computes attention of one new token per row to the slots of its row, up to its position.

    Arguments and result are those of `attend_cache` in models/attention.py with T = 1, without the
    axis T. The bits of a row's result do not depend on other rows.
    """
    H = q_nNH.shape[-1]
    result = jax.ShapeDtypeStruct(q_nNH.shape, jnp.float32)
    attend = library.call("agentgym_decode_attention", _dtype(k_LBKSH), result)
    numbers = (jnp.asarray(x, jnp.int32) for x in (layer, row_n, position_n))
    out_nNH = attend(q_nNH.astype(jnp.float32) * H**-0.5, k_LBKSH, v_LBKSH, *numbers)
    return out_nNH.astype(q_nNH.dtype)


def _dtype(cache_LBKSH: jax.Array):
    return jnp.bfloat16 if cache_LBKSH.dtype == jnp.uint16 else cache_LBKSH.dtype
