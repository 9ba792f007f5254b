"""Matrix products of one decode step: few rows, weights that are read once."""

import math

import jax
import jax.numpy as jnp

from agentgym_jax.native.library import is_registered

# Smaller weights stay in a cache, where XLA's product is as fast.
MIN_WEIGHTS = 1 << 16
# One row is a product of its own to XLA, and fast; for many the copy of the weights is little.
MIN_ROWS, MAX_ROWS = 2, 32


def einsum(spec: str, x: jax.Array, weights: jax.Array, **options) -> jax.Array:
    """`jnp.einsum` of rows and weights, faster on CPU in float32; no gradient.

    There a row of the result has the same bits whatever the other rows are, and how many they
    are within MIN_ROWS and MAX_ROWS.

    Args:
      spec: such as "btd,dnh->btnh" or "bd,vd->bv": the last axes of x are summed, with the first
        of the weights or with the last, and what remains is in the order of the operands.
      x: [rows.., summed..].
      weights: [summed.., new..] or [new.., summed..].
      **options: of `jnp.einsum`.
    """
    operands, out_axes = spec.split("->")
    x_axes, weight_axes = operands.split(",")
    summed = "".join(axis for axis in x_axes if axis in weight_axes)
    rows, new = x_axes.removesuffix(summed), weight_axes.replace(summed, "")
    is_transposed = weight_axes == new + summed
    if not (is_transposed or weight_axes == summed + new) or out_axes != rows + new:
        raise ValueError(f"native.products: {spec!r} is no product of rows and weights")
    sizes = dict(zip(x_axes + weight_axes, x.shape + weights.shape, strict=True))
    M, K = (math.prod(sizes[axis] for axis in axes) for axes in (rows, summed))
    if not _is_worth_it(M, x, weights) or not is_registered():
        return jnp.einsum(spec, x, weights, **options)
    weights = weights.reshape((-1, K) if is_transposed else (K, -1))
    y_MN = _multiply(x.reshape(M, K), weights, is_transposed)
    return y_MN.reshape([sizes[axis] for axis in out_axes])


def _is_worth_it(M: int, x: jax.Array, weights: jax.Array) -> bool:
    is_float32 = x.dtype == weights.dtype == jnp.float32
    is_in_size = MIN_ROWS <= M <= MAX_ROWS and weights.size >= MIN_WEIGHTS
    return jax.default_backend() == "cpu" and is_float32 and is_in_size


def _multiply(x_MK: jax.Array, weights: jax.Array, is_transposed: bool) -> jax.Array:
    N = weights.shape[0 if is_transposed else 1]
    target = "agentgym_skinny_matmul" + ("_transposed" if is_transposed else "")
    result = jax.ShapeDtypeStruct((x_MK.shape[0], N), x_MK.dtype)
    return jax.ffi.ffi_call(target, result)(x_MK, weights)
