"""A scan over stacked layers whose backward pass reads activations that are stored as bits."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from agentgym_jax.models.bits import from_bits, to_bits

Cast = Callable[[Any], Any]
# (hidden states, cast weights of one layer, constants) -> hidden states
Layer = Callable[[jax.Array, Any, Any], jax.Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scan_layers(cast: Cast, layer: Layer, x: jax.Array, stacked: Any, constants: Any) -> jax.Array:
    """Applies a layer once for every set of weights.

    Values and gradients are those of `jax.lax.scan`, which stores for its backward pass what a
    layer read and computed. Two things are stored differently. Cast weights are not: they would
    take the memory of thousands of tokens. Activations in bfloat16 are stored as bits, because XLA
    on CPU would write those of one layer by converting those of all layers (models/bits.py).

    Args:
      cast: weights of one layer to the types that `layer` computes with.
      layer: one layer. Under `jax.checkpoint` it decides which activations are stored.
      x: input of the first layer.
      stacked: tree of weights, each with a leading axis of layers.
      constants: tree of arrays that every layer reads. They get no gradient.

    Returns:
      Output of the last layer.
    """

    def step(x, weights):
        return layer(x, cast(weights), constants), None

    return jax.lax.scan(step, x, stacked)[0]


def _forward(cast, layer, x, stacked, constants):
    def step(x, weights):
        y, pull_back = jax.vjp(layer, x, cast(weights), constants)
        pull_back.args_res = None  # the backward pass has these already
        return y, jax.tree.map(to_bits, (x, pull_back))

    y, stored = jax.lax.scan(step, x, stacked)
    return y, (stored, stacked, constants)


def _backward(cast, layer, residuals, d_y):
    stored, stacked, constants = residuals

    def step(d_y, stored_and_weights):
        stored, weights = stored_and_weights
        x, pull_back = jax.tree.map(from_bits, stored)
        cast_weights, pull_back_cast = jax.vjp(cast, weights)
        pull_back.args_res = [x, cast_weights, constants]
        d_x, d_cast_weights, _ = pull_back(d_y)
        return d_x, *pull_back_cast(d_cast_weights)

    d_x, d_stacked = jax.lax.scan(step, d_y, (stored, stacked), reverse=True)
    return d_x, d_stacked, None


scan_layers.defvjp(_forward, _backward)
