"""Matrix products of one decode step: few rows, weights that are read once."""

import functools
import math

import jax
import jax.numpy as jnp

from agentgym_jax.native import library

# Smaller weights stay in a cache, where XLA's product is as fast.
MIN_WEIGHTS = 1 << 16
# With more rows the copy that XLA makes of the weights is little.
MAX_ROWS = 32
# In bfloat16, where XLA has a tile unit (Intel's AMX): with more rows that is faster.
MAX_ROWS_BESIDE_TILES = 3


def transposed(spec: str, weights: jax.Array) -> jax.Array:
    """The weights as `einsum_transposed` wants them: axes of the result first, then summed ones."""
    return jnp.einsum(f"{_weight_axes(spec)}->{''.join(_transposed_axes(spec))}", weights)


def untransposed(spec: str, weights: jax.Array) -> jax.Array:
    """Undoes `transposed`."""
    return jnp.einsum(f"{''.join(_transposed_axes(spec))}->{_weight_axes(spec)}", weights)


def einsum_xla(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """`jnp.einsum`, computed on CPU as XLA computes it best.

    It widens the operands of a product whose result is bfloat16. Asked for the float32 sums, it
    leaves the product to the processor's tile unit, where there is one: a third of the time.
    """
    dtype = preferred_element_type or x.dtype
    asked = jnp.float32 if dtype == jnp.bfloat16 and jax.default_backend() == "cpu" else dtype
    return jnp.einsum(spec, x, weights, preferred_element_type=asked).astype(dtype)


def einsum_transposed(
    spec: str, x: jax.Array, weights: jax.Array, preferred_element_type=None
) -> jax.Array:
    """`jnp.einsum(spec, x, w)` of rows and weights, given `transposed(spec, w)`; no gradient.

    On CPU faster for up to MAX_ROWS rows in float32 and bfloat16. There sums are float32, and a row
    of the result has the same bits whatever the other rows are, and how many they are within
    MAX_ROWS. In bfloat16 a tile unit of the processor, which XLA uses, has all but the fewest rows.

    Args:
      spec: such as "btd,dnh->btnh": the axes that both operands have are summed.
      x: [rows.., summed..].
      weights: [new.., summed..].
      preferred_element_type: as in `jnp.einsum`.
    """
    x_axes = spec.split(",")[0]
    new, summed = _transposed_axes(spec)
    rows = x_axes.removesuffix(summed)
    num_rows = math.prod(x.shape[: len(rows)])
    is_ours = _is_ours(num_rows, x, weights)
    if x.dtype == jnp.float32 and not is_ours:  # in bfloat16 XLA would copy the weights for this
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
    """If decode steps of so many rows in this type gain by `einsum_transposed`."""
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
    """Axes of the weights that the result has, and those that are summed over."""
    operands, out_axes = spec.split("->")
    x_axes, weight_axes = operands.split(",")
    summed = "".join(axis for axis in x_axes if axis in weight_axes)
    rows, new = x_axes.removesuffix(summed), "".join(a for a in weight_axes if a not in summed)
    if not x_axes.endswith(summed) or out_axes != rows + new:
        raise ValueError(f"native.products: {spec!r} is no product of rows and weights")
    return new, summed
