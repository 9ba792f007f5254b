"""Masked statistics: an empty mask gives 0, and values off the mask have no effect, even NaN."""

import chex
import jax
import jax.numpy as jnp


def masked_sum(
    value: jax.Array, mask: jax.Array, axis: int | None = None, keepdims: bool = False
) -> jax.Array:
    """Returns the sum over the mask."""
    chex.assert_equal_shape([value, mask])
    chex.assert_type(mask, bool)
    return jnp.sum(jnp.where(mask, value, 0.0), axis=axis, keepdims=keepdims)


def masked_mean(
    value: jax.Array, mask: jax.Array, axis: int | None = None, keepdims: bool = False
) -> jax.Array:
    """Returns the mean over the mask."""
    total = masked_sum(value, mask, axis, keepdims)
    count = jnp.sum(mask, axis=axis, keepdims=keepdims)
    return total / jnp.maximum(count, 1)


def masked_std(
    value: jax.Array, mask: jax.Array, axis: int | None = None, keepdims: bool = False
) -> jax.Array:
    """Returns the sample standard deviation (n - 1) over the mask; 0 for fewer than two values."""
    mean = masked_mean(value, mask, axis=axis, keepdims=True)
    centred = jnp.where(mask, value - jnp.broadcast_to(mean, value.shape), 0.0)
    squares = jnp.sum(centred**2, axis=axis, keepdims=keepdims)
    count = jnp.sum(mask, axis=axis, keepdims=keepdims)
    return jnp.sqrt(squares / jnp.maximum(count - 1, 1))


def masked_max(value: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns the largest value on the mask."""
    chex.assert_equal_shape([value, mask])
    largest = jnp.max(jnp.where(mask, value, -jnp.inf))
    return jnp.where(jnp.any(mask), largest, 0.0)


def masked_standardised(value: jax.Array, mask: jax.Array, eps: float) -> jax.Array:
    """Returns (value - mean) / (std + eps) over the mask; exactly 0 if all values are equal."""
    mean, std = masked_mean(value, mask), masked_std(value, mask)
    high = jnp.max(jnp.where(mask, value, -jnp.inf))
    low = jnp.min(jnp.where(mask, value, jnp.inf))
    return jnp.where(mask & (high > low), (value - mean) / (std + eps), 0.0)
