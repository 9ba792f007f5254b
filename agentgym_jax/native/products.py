"""Matrix products of one decode step: few rows, weights that are read once."""

import math

import jax
import jax.numpy as jnp

from agentgym_jax.native.library import is_registered

# Smaller weights stay in a cache, where XLA's product is as fast.
MIN_WEIGHTS = 1 << 16
# With more rows the copy that XLA makes of the weights is little.
MAX_ROWS = 32


def transposed(spec: str, weights: jax.Array) -> jax.Array:
    """The weights as `einsum_transposed` wants them: axes of the result first, then summed ones."""
    return jnp.einsum(f"{_weight_axes(spec)}->{''.join(_transposed_axes(spec))}", weights)


def untransposed(spec: str, weights: jax.Array) -> jax.Array:
    """Undoes `transposed`."""
    return jnp.einsum(f"{''.join(_transposed_axes(spec))}->{_weight_axes(spec)}", weights)


def einsum_transposed(spec: str, x: jax.Array, weights: jax.Array, **options) -> jax.Array:
    """`jnp.einsum(spec, x, w)` of rows and weights, given `transposed(spec, w)`; no gradient.

    On CPU faster for up to MAX_ROWS rows in float32. There a row of the result has the same bits
    whatever the other rows are, and how many they are within MAX_ROWS.

    Args:
      spec: such as "btd,dnh->btnh": the axes that both operands have are summed.
      x: [rows.., summed..].
      weights: [new.., summed..].
      **options: of `jnp.einsum`.
    """
    x_axes = spec.split(",")[0]
    new, summed = _transposed_axes(spec)
    rows = x_axes.removesuffix(summed)
    if not _is_ours(math.prod(x.shape[: len(rows)]), x, weights):
        return jnp.einsum(f"{x_axes},{new + summed}->{rows + new}", x, weights, **options)
    sizes = x.shape[: len(rows)] + weights.shape[: len(new)]
    K = math.prod(x.shape[len(rows) :])
    x_MK, weights_NK = x.reshape(-1, K), weights.reshape(-1, K)
    result = jax.ShapeDtypeStruct((x_MK.shape[0], weights_NK.shape[0]), x.dtype)
    return jax.ffi.ffi_call("agentgym_skinny_matmul", result)(x_MK, weights_NK).reshape(sizes)


def is_for(num_rows: int, dtype: jax.typing.DTypeLike) -> bool:
    """If decode steps of so many rows in this type gain by `einsum_transposed`."""
    is_float32 = jnp.dtype(dtype) == jnp.float32
    is_cpu = jax.default_backend() == "cpu"
    return num_rows <= MAX_ROWS and is_float32 and is_cpu and is_registered()


def _is_ours(num_rows: int, x: jax.Array, weights: jax.Array) -> bool:
    is_float32 = x.dtype == weights.dtype == jnp.float32
    return is_float32 and weights.size >= MIN_WEIGHTS and is_for(num_rows, x.dtype)


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
