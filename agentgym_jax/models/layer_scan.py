"""Scan over stacked layers for training."""

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.bfloat16_bits import from_bits, to_bits


@flax.struct.dataclass
class WithGradientSum:
    """Layer weights, and the sum of their gradients over earlier micro-batches.

    The gradient of `total` is the new sum: the backward pass adds the gradient of each layer in
    place, so that no second tree of gradients exists. The gradient of `weights` is 0. A loss may
    use the layers only once.
    """

    weights: Any
    total: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scan_layers(
    cast: Callable,
    layer: Callable,
    x: jax.Array,
    stacked: Any,
    constants: Any,
    total: Any = None,
    frozen: Any = None,
):
    """Applies all layers like `jax.lax.scan`, but stores fewer residuals for the backward pass.

    Cast weights are not stored; they would take the memory of thousands of tokens. Activations in
    bfloat16 are stored as bits (models/bfloat16_bits.py).

    Args:
      cast: Function that casts the weights of one layer, a pair (trained, frozen), to the types
        `layer` computes with.
      layer: Function of hidden states, cast pair of weights and constants that returns hidden states.
        `jax.checkpoint` around it decides which activations are stored.
      x: Input of the first layer.
      stacked: Tree of weights with a leading axis of layers.
      constants: Tree of arrays without gradient that every layer reads.
      total: Sum of earlier gradients (`WithGradientSum`), in the order of the leaves of `stacked`;
        None for none.
      frozen: Tree of weights with a leading axis of layers that get no gradient; None for none.
    """

    def step(x, weights):
        return layer(x, cast(weights), constants), None

    return jax.lax.scan(step, x, (stacked, frozen))[0]


def _forward(cast, layer, x, stacked, constants, total=None, frozen=None):
    def step(x, weights):
        pull_back: Any  # has attributes that JAX does not declare
        y, pull_back = jax.vjp(layer, x, cast(weights), constants)
        pull_back.args_res = None  # the backward pass sets these arrays again
        return y, jax.tree.map(to_bits, (x, pull_back))

    y, stored = jax.lax.scan(step, x, (stacked, frozen))
    return y, (stored, (stacked, frozen), constants, total)


def _backward(cast, layer, residuals, d_y):
    stored, stacked, constants, total = residuals

    def step(d_y, stored_and_weights):
        stored, weights = stored_and_weights
        x, pull_back = jax.tree.map(from_bits, stored)
        cast_weights, pull_back_cast = jax.vjp(cast, weights)
        pull_back.args_res = [x, cast_weights, constants]
        d_x, d_cast_weights, _ = pull_back(d_y)
        ((d_weights, _),) = pull_back_cast(d_cast_weights)
        return d_x, d_weights

    if total is None:
        d_x, d_stacked = jax.lax.scan(step, d_y, (stored, stacked), reverse=True)
        return d_x, d_stacked, None, None, None

    def add_step(carry, numbered):
        d_y, sums = carry
        number, *stored_and_weights = numbered
        d_x, d_weights = step(d_y, stored_and_weights)
        new = []
        for sum_, d_w in zip(sums, jax.tree.leaves(d_weights), strict=True):
            one = jax.lax.dynamic_index_in_dim(sum_, number, 0, keepdims=False)
            one += d_w.astype(one.dtype)
            new.append(jax.lax.dynamic_update_index_in_dim(sum_, one, number, 0))
        return (d_x, new), None

    leaves, treedef = jax.tree.flatten(total)
    layers = (jnp.arange(len(leaves[0])), stored, stacked)
    (d_x, leaves), _ = jax.lax.scan(add_step, (d_y, leaves), layers, reverse=True)
    return d_x, None, None, jax.tree.unflatten(treedef, leaves), None


scan_layers.defvjp(_forward, _backward)
