"""Conversion between bfloat16 arrays and arrays of their bits.

XLA on CPU writes into a uint16 array in place. To write into a bfloat16 array, it converts the
whole array to float32 and back.
"""

import jax
import jax.numpy as jnp


def to_bits(x: jax.Array) -> jax.Array:
    """Returns a bfloat16 array as uint16, and an array of any other type unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: jax.Array) -> jax.Array:
    """Returns a uint16 array as bfloat16, and an array of any other type unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x
