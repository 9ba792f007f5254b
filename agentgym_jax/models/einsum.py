"""Einsum of activations with weights, with a backward pass in the compute type."""

import functools

import jax
import jax.numpy as jnp

from agentgym_jax.native.products import einsum_xla

# Einsum specification of each kernel of a layer.
KERNEL_SPECS = {
    "q_kernel": "btd,dnh->btnh",
    "k_kernel": "btd,dnh->btnh",
    "v_kernel": "btd,dnh->btnh",
    "o_kernel": "btnh,nhd->btd",
    "gate_kernel": "btd,df->btf",
    "up_kernel": "btd,df->btf",
    "down_kernel": "btf,fd->btd",
}


def einsum(spec: str, x: jax.Array, kernel: jax.Array, preferred_element_type=None) -> jax.Array:
    """Computes `jnp.einsum` with a backward pass that multiplies in the type of `x`.

    JAX's gradient for bfloat16 operands with a float32 result, such as logits, multiplies float32
    by bfloat16, which no tensor core or tile unit supports. `x` and `kernel` have the same type.
    Each axis of `spec` occurs in two of x, kernel and result.
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
