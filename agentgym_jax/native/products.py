"""Matrix products of one decode step, which has few rows and reads every weight once."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from agentgym_jax.mesh.sharding import get_platform
from agentgym_jax.native import library

# Smaller weights fit the processor's cache, where XLA is as fast as native code.
MIN_WEIGHTS = 1 << 16
# With more rows, XLA's copy of the weights takes little of its time.
MAX_ROWS = 32
# Limit for bfloat16 on processors with a tile unit (Intel AMX). For more rows, XLA is faster there.
MAX_ROWS_WITH_TILES = 3


def transposed(spec: str, weights: jax.Array) -> jax.Array:
    """Returns weights with the axes of the result first, then the summed axes."""
    axes = _split_axes(spec)
    return jnp.einsum(f"{axes.weights}->{axes.new}{axes.summed}", weights)


def untransposed(spec: str, weights: jax.Array) -> jax.Array:
    """Converts the result of `transposed` back."""
    axes = _split_axes(spec)
    return jnp.einsum(f"{axes.new}{axes.summed}->{axes.weights}", weights)


def einsum_xla(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """Computes `jnp.einsum` in the form that XLA executes fastest on CPU.

    XLA on CPU converts the operands of a product to float32 if the result is bfloat16. For a
    float32 result, XLA uses the processor's tile unit and takes a third of the time.
    """
    dtype = preferred_element_type or x.dtype
    asked = jnp.float32 if dtype == jnp.bfloat16 and get_platform() == "cpu" else dtype
    return jnp.einsum(spec, x, weights, preferred_element_type=asked).astype(dtype)


def einsum_transposed(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """Computes `jnp.einsum(spec, x, w)`, where `weights` is `transposed(spec, w)`; has no gradient.

    Sums are float32. Up to MAX_ROWS, the bits of a result row do not depend on the content or
    number of other rows. Axes that both operands have are summed and are the last axes of `x`.
    """
    axes = _split_axes(spec)
    rows, new = len(axes.rows), len(axes.new)
    num_rows = math.prod(x.shape[:rows])
    is_native = _is_native(num_rows, x, weights)
    # In bfloat16, XLA would copy the weights for this product.
    if x.dtype == jnp.float32 and not is_native:
        spec = f"{axes.rows}{axes.summed},{axes.new}{axes.summed}->{axes.rows}{axes.new}"
        return jnp.einsum(spec, x, weights, preferred_element_type=preferred_element_type)
    x_MK = x.reshape(num_rows, -1)
    weights_NK = weights.reshape(-1, x_MK.shape[1])
    multiply = _multiply if is_native else functools.partial(einsum_xla, "mk,nk->mn")
    y_MN = multiply(x_MK, weights_NK, preferred_element_type or x.dtype)
    return y_MN.reshape(x.shape[:rows] + weights.shape[:new])


def supports(num_rows: int, dtype: jax.typing.DTypeLike) -> bool:
    """Returns True if native code is faster for decode steps of this many rows in this type."""
    is_known = jnp.dtype(dtype) in library.SUFFIXES
    is_cpu = get_platform() == "cpu"
    return num_rows <= MAX_ROWS and is_known and is_cpu and library.is_registered()


def _multiply(x_MK: jax.Array, weights_NK: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    result = jax.ShapeDtypeStruct((x_MK.shape[0], weights_NK.shape[0]), jnp.float32)
    multiply = library.call("agentgym_skinny_matmul", weights_NK.dtype, result)
    return multiply(x_MK.astype(jnp.float32), weights_NK).astype(dtype)


def _is_native(num_rows: int, x: jax.Array, weights: jax.Array) -> bool:
    if x.dtype != weights.dtype or weights.size < MIN_WEIGHTS or not supports(num_rows, x.dtype):
        return False
    return x.dtype == jnp.float32 or num_rows <= MAX_ROWS_WITH_TILES or not library.has_tiles()


class _Axes(NamedTuple):
    rows: str  # axes of x and the result
    new: str  # axes of the weights and the result
    summed: str  # axes of x and the weights
    weights: str  # all axes of the weights, in their order in the specification


def _split_axes(spec: str) -> _Axes:
    operands, out_axes = spec.split("->")
    x_axes, weight_axes = operands.split(",")
    summed = "".join(axis for axis in x_axes if axis in weight_axes)
    rows, new = x_axes.removesuffix(summed), "".join(a for a in weight_axes if a not in summed)
    if not x_axes.endswith(summed) or out_axes != rows + new:
        raise ValueError(f"native.products: {spec!r} is no product of rows and weights")
    return _Axes(rows, new, summed, weight_axes)
