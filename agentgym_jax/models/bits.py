"""Arrays of bfloat16 as arrays of their bits.

XLA on CPU writes into an array of bfloat16 by widening all of it and narrowing it again. It writes
into an array of uint16 in place.
"""

import jax
import jax.numpy as jnp


def to_bits(x: jax.Array) -> jax.Array:
    """Returns bfloat16 as uint16, and any other type unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: jax.Array) -> jax.Array:
    """Returns uint16 as bfloat16, and any other type unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x
