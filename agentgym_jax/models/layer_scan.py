"""Scan over stacked layers for training."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from agentgym_jax.models.bfloat16_bits import from_bits, to_bits


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scan_layers(cast: Callable, layer: Callable, x: jax.Array, stacked: Any, constants: Any):
    """Applies all layers like `jax.lax.scan`, but stores fewer residuals for the backward pass.

    Cast weights are not stored; they would take the memory of thousands of tokens. Activations in
    bfloat16 are stored as bits (models/bfloat16_bits.py).

    Args:
      cast: Function that casts the weights of one layer to the types `layer` computes with.
      layer: Function of hidden states, cast weights and constants that returns hidden states.
        `jax.checkpoint` around it decides which activations are stored.
      x: Input of the first layer.
      stacked: Tree of weights with a leading axis of layers.
      constants: Tree of arrays without gradient that every layer reads.
    """

    def step(x, weights):
        return layer(x, cast(weights), constants), None

    return jax.lax.scan(step, x, stacked)[0]


def _forward(cast, layer, x, stacked, constants):
    def step(x, weights):
        y, pull_back = jax.vjp(layer, x, cast(weights), constants)
        pull_back.args_res = None  # the backward pass sets these arrays again
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
