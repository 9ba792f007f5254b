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
# Kernels of a gated delta net (delta_net.py): always in plain JAX and without adapters.
DELTA_NET_SPECS = {
    "qkv_kernel": "btd,dc->btc",
    "z_kernel": "btd,dnh->btnh",
    "beta_kernel": "btd,dn->btn",
    "decay_kernel": "btd,dn->btn",
    "out_kernel": "btnh,nhd->btd",
}
LAYER_SPECS = KERNEL_SPECS | DELTA_NET_SPECS


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


def train_product(name: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiplies hidden states with a kernel of a layer, named as in LAYER_SPECS."""
    if x.dtype == jnp.float32 and name in ("gate_kernel", "up_kernel"):
        return _expand_float32(x, kernel)
    return einsum(LAYER_SPECS[name], x, kernel)


@jax.custom_vjp
def _expand_float32(x_BTD: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """Computes x @ kernel; the gradient of the kernel is x.T @ d_y instead of (d_y.T @ x).T.

    XLA on CPU transposes the left operand of such a product in memory. In x.T @ d_y it transposes
    the narrow array x, once for the gate and up kernels. This saves 20 % of the time of an update
    of configs/quickstart.py on 2 cores.
    """
    return einsum(KERNEL_SPECS["up_kernel"], x_BTD, kernel_DF)


def _expand_forward(x_BTD, kernel_DF):
    return _expand_float32(x_BTD, kernel_DF), (x_BTD, kernel_DF)


def _expand_backward(saved, d_y_BTF):
    x_BTD, kernel_DF = saved
    d_x_BTD = jnp.einsum("btf,df->btd", d_y_BTF, kernel_DF)
    return d_x_BTD, jnp.einsum("btd,btf->df", x_BTD, d_y_BTF)


_expand_float32.defvjp(_expand_forward, _expand_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def einsum_frozen(spec: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Computes `einsum` without a gradient of the kernel; the backward pass does not need x."""
    return einsum(spec, x, kernel)


def _frozen_forward(spec, x, kernel):
    return einsum(spec, x, kernel), kernel


def _frozen_backward(spec, kernel, d_y):
    operands, y_axes = spec.split("->")
    x_axes, kernel_axes = operands.split(",")
    return einsum(f"{y_axes},{kernel_axes}->{x_axes}", d_y.astype(kernel.dtype), kernel), None


einsum_frozen.defvjp(_frozen_forward, _frozen_backward)
