"""Gradients of many micro-batches as one, and the optimiser step that they make."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agentgym_jax.learner.optimizer import at_position
from agentgym_jax.learner.train_state import TrainState

Sums = dict[str, jax.Array]


def accumulated(
    loss_of: Callable[[Any, Any], tuple[jax.Array, tuple[Sums, Sums]]],
    params: Any,
    batch: Any,
    used: jax.Array,
    *,
    sums: Sequence[str],
    maxima: Sequence[str] = (),
) -> tuple[jax.Array, Any, Sums]:
    """Sum of the losses of some micro-batches, its gradient, and what they counted.

    The number of micro-batches is a capacity: one program serves every step, and those beyond
    `used` are not computed. A single one is always computed: its gradients are the result, so that
    memory holds one tree of them and not two.

    Args:
      loss_of: (params, micro-batch) -> (loss, (numbers to be added, numbers of which the largest
        counts)).
      params: tree of float32 arrays.
      batch: tree whose leaves have the micro-batches as their first axis.
      used: int, how many of them.
      sums: names of what is added.
      maxima: names of the others; all are at least 0.

    Returns:
      The loss, float32 gradients like `params`, and the numbers by name.
    """
    grad_of = jax.value_and_grad(loss_of, has_aux=True)

    if jax.tree.leaves(batch)[0].shape[0] == 1:
        only = jax.tree.map(lambda x: x[0], batch)
        (total, (added, largest)), grads = grad_of(params, only)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return total, grads, added | largest

    def step(m, carry):
        total, grads, added, largest = carry
        one = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, m, 0, False), batch)
        (value, (new, new_largest)), grad = grad_of(params, one)
        grads = jax.tree.map(lambda a, g: a + g.astype(jnp.float32), grads, grad)
        added = jax.tree.map(jnp.add, added, new)
        return total + value, grads, added, jax.tree.map(jnp.maximum, largest, new_largest)

    zero = jnp.zeros((), jnp.float32)
    grads = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    first = (zero, grads, dict.fromkeys(sums, zero), dict.fromkeys(maxima, zero))
    total, grads, added, largest = jax.lax.fori_loop(0, used, step, first)
    return total, grads, added | largest


def used_micro_batches(segment_ids_MBT: jax.Array) -> jax.Array:
    """Number of the last micro-batch that holds a token, counted from 1."""
    is_used_M = jnp.any(segment_ids_MBT > 0, axis=(1, 2))
    return jnp.max(jnp.where(is_used_M, jnp.arange(is_used_M.shape[0]) + 1, 0))


def applied(
    optimizer: optax.GradientTransformation,
    state: TrainState,
    grads: Any,
    position: jax.Array | None = None,
) -> tuple[TrainState, jax.Array]:
    """Returns the state after one optimiser step, and the norm of the change of the parameters.

    Args:
      optimizer: from `make_optimizer`.
      state: before the step.
      grads: float32, like the parameters.
      position: of the step in the run (`optimizer.at_position`).
    """
    opt_state = at_position(state.opt_state, position)
    updates, opt_state = optimizer.update(grads, opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    new = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
    return new, optax.tree.norm(updates)


def finite(metrics: Sums) -> Sums:
    """Metrics of which those that are not finite read 0: a skipped step must not end a log."""
    return {name: jnp.where(jnp.isfinite(value), value, 0.0) for name, value in metrics.items()}
