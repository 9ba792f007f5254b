"""Products of tokens with kernels, in the compute type forwards and backwards."""

import functools

import jax
import jax.numpy as jnp

from agentgym_jax.native.products import einsum_xla


def einsum(spec: str, x: jax.Array, kernel: jax.Array, preferred_element_type=None) -> jax.Array:
    """`jnp.einsum` whose backward pass multiplies in the type of `x` as well.

    JAX's own gradient of bfloat16 operands with a float32 result, such as logits, has products of
    float32 with bfloat16, which no tensor core or tile unit computes. For float32 it is
    `jnp.einsum`.

    Args:
      spec: such as "btd,dnh->btnh"; an axis is in two of the three operands.
      x: tokens.
      kernel: weights, of the same type.
      preferred_element_type: as in `jnp.einsum`; the sums are float32 in any case.
    """
    if x.dtype != jnp.bfloat16:
        return jnp.einsum(spec, x, kernel, preferred_element_type=preferred_element_type)
    return _einsum_bfloat16(spec, preferred_element_type or x.dtype, x, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _einsum_bfloat16(spec: str, dtype, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return einsum_xla(spec, x, kernel, dtype)


def _forward(spec, dtype, x, kernel):
    return einsum_xla(spec, x, kernel, dtype), (x, kernel)


def _backward(spec, dtype, saved, d_y):
    x, kernel = saved
    operands, y_axes = spec.split("->")
    x_axes, kernel_axes = operands.split(",")
    d_y = d_y.astype(x.dtype)
    d_x = einsum_xla(f"{y_axes},{kernel_axes}->{x_axes}", d_y, kernel, x.dtype)
    return d_x, einsum_xla(f"{x_axes},{y_axes}->{kernel_axes}", x, d_y, kernel.dtype)


_einsum_bfloat16.defvjp(_forward, _backward)
