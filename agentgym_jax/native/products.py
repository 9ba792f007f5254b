"""Matrix products of one decode step, which has few rows and reads every weight once."""

import functools
import math

import jax
import jax.numpy as jnp

from agentgym_jax.native import library

# Smaller weights fit the processor's cache, where XLA's product is as fast as the native one.
MIN_WEIGHTS = 1 << 16
# With more rows, the time in which XLA copies the weights matters little.
MAX_ROWS = 32
# Limit for bfloat16 on processors with a tile unit (Intel's AMX). XLA uses that unit and is faster
# for more rows.
MAX_ROWS_BESIDE_TILES = 3


def transposed(spec: str, weights: jax.Array) -> jax.Array:
    """Returns the weights in the layout of `einsum_transposed`: first the axes of the result, then
    the summed axes.
    """
    return jnp.einsum(f"{_weight_axes(spec)}->{''.join(_transposed_axes(spec))}", weights)


def untransposed(spec: str, weights: jax.Array) -> jax.Array:
    """Converts the result of `transposed` back."""
    return jnp.einsum(f"{''.join(_transposed_axes(spec))}->{_weight_axes(spec)}", weights)


def einsum_xla(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """Computes `jnp.einsum` in the form that XLA executes fastest on CPU.

    XLA on CPU converts the operands of a product to float32 if the result is bfloat16. If the
    result type is float32, XLA uses the processor's tile unit, if there is one, and takes a third
    of the time.
    """
    dtype = preferred_element_type or x.dtype
    asked = jnp.float32 if dtype == jnp.bfloat16 and jax.default_backend() == "cpu" else dtype
    return jnp.einsum(spec, x, weights, preferred_element_type=asked).astype(dtype)


def einsum_transposed(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """Computes `jnp.einsum(spec, x, w)`, where `weights` is `transposed(spec, w)`; has no gradient.

    This function is faster than XLA on CPU for up to MAX_ROWS rows in float32 and bfloat16. Sums
    are float32. Up to MAX_ROWS, the bits of a result row do not depend on the content or number of
    other rows. In bfloat16, XLA uses the processor's tile unit, which is faster for all but very
    few rows.

    Args:
      spec: Specification such as "btd,dnh->btnh"; the axes that both operands have are summed.
      x: [rows.., summed..].
      weights: [new.., summed..].
      preferred_element_type: Same as in `jnp.einsum`.
    """
    x_axes = spec.split(",")[0]
    new, summed = _transposed_axes(spec)
    rows = x_axes.removesuffix(summed)
    num_rows = math.prod(x.shape[: len(rows)])
    is_ours = _is_ours(num_rows, x, weights)
    # in bfloat16 XLA would copy the weights for this product
    if x.dtype == jnp.float32 and not is_ours:
        spec = f"{x_axes},{new + summed}->{rows + new}"
        return jnp.einsum(spec, x, weights, preferred_element_type=preferred_element_type)
    sizes = x.shape[: len(rows)] + weights.shape[: len(new)]
    x_MK = x.reshape(num_rows, -1)
    weights_NK = weights.reshape(-1, x_MK.shape[1])
    multiply = _multiply if is_ours else functools.partial(einsum_xla, "mk,nk->mn")
    dtype = preferred_element_type or x.dtype
    return multiply(x_MK, weights_NK, dtype).reshape(sizes)


def _multiply(x_MK: jax.Array, weights_NK: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    result = jax.ShapeDtypeStruct((x_MK.shape[0], weights_NK.shape[0]), jnp.float32)
    multiply = library.call("agentgym_skinny_matmul", weights_NK.dtype, result)
    return multiply(x_MK.astype(jnp.float32), weights_NK).astype(dtype)


def is_for(num_rows: int, dtype: jax.typing.DTypeLike) -> bool:
    """Returns True if decode steps of this many rows in this type are faster with
    `einsum_transposed`.
    """
    is_known = jnp.dtype(dtype) in library.SUFFIXES
    is_cpu = jax.default_backend() == "cpu"
    return num_rows <= MAX_ROWS and is_known and is_cpu and library.is_registered()


def _is_ours(num_rows: int, x: jax.Array, weights: jax.Array) -> bool:
    if x.dtype != weights.dtype or weights.size < MIN_WEIGHTS or not is_for(num_rows, x.dtype):
        return False
    return x.dtype == jnp.float32 or num_rows <= MAX_ROWS_BESIDE_TILES or not library.has_tiles()


def _weight_axes(spec: str) -> str:
    return spec.split("->")[0].split(",")[1]


def _transposed_axes(spec: str) -> tuple[str, str]:
    """Returns the axes of the weights that are in the result, and the summed axes."""
    operands, out_axes = spec.split("->")
    x_axes, weight_axes = operands.split(",")
    summed = "".join(axis for axis in x_axes if axis in weight_axes)
    rows, new = x_axes.removesuffix(summed), "".join(a for a in weight_axes if a not in summed)
    if not x_axes.endswith(summed) or out_axes != rows + new:
        raise ValueError(f"native.products: {spec!r} is no product of rows and weights")
    return new, summed
