"""Accumulation of the gradients of many micro-batches, and the optimiser step on their sum."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agentgym_jax.learner.optimizer import set_schedule_position
from agentgym_jax.learner.train_state import TrainState

Sums = dict[str, jax.Array]


def accumulate_gradients(
    loss_fn: Callable[[Any, Any], tuple[jax.Array, tuple[Sums, Sums]]],
    params: Any,
    batch: Any,
    used: jax.Array,
) -> tuple[jax.Array, Any, Sums]:
    """Returns the summed loss of the first `used` micro-batches, its gradient and the combined
    metrics.

    `used` may be an array, so one program serves every step, and later micro-batches are not
    computed. If there is a single micro-batch, it is always computed and its gradients are returned
    directly. Memory then holds one tree of gradients instead of two.

    Args:
      loss_fn: Maps (params, micro-batch) to (loss, (metrics to add, metrics to maximise)). Metrics
        to maximise are at least 0.
      params: Tree of float32 arrays.
      batch: Tree whose leaves have the micro-batches as their first axis.
      used: Number of micro-batches to compute.

    Returns:
      The loss, float32 gradients in the form of `params`, and the metrics by name.
    """
    grad_fn = jax.value_and_grad(loss_fn, has_aux=True)

    if jax.tree.leaves(batch)[0].shape[0] == 1:
        only = jax.tree.map(lambda x: x[0], batch)
        (total, (added, largest)), grads = grad_fn(params, only)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return total, grads, added | largest

    def micro_batch(m):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, m, 0, False), batch)

    def step(m, carry):
        total, grads, added, largest = carry
        (value, (new, new_largest)), grad = grad_fn(params, micro_batch(m))
        grads = jax.tree.map(lambda a, g: a + g.astype(jnp.float32), grads, grad)
        added = jax.tree.map(jnp.add, added, new)
        return total + value, grads, added, jax.tree.map(jnp.maximum, largest, new_largest)

    loss, (added, largest) = jax.eval_shape(lambda: loss_fn(params, micro_batch(0)))
    first = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (loss, params, added, largest))
    with jax.named_scope("micro_batches"):
        total, grads, added, largest = jax.lax.fori_loop(0, used, step, first)
    return total, grads, added | largest


def count_used_micro_batches(segment_ids_MBT: jax.Array) -> jax.Array:
    """Returns the number of micro-batches up to the last one with a token."""
    is_used_M = jnp.any(segment_ids_MBT > 0, axis=(1, 2))
    return jnp.max(jnp.where(is_used_M, jnp.arange(is_used_M.shape[0]) + 1, 0))


def apply_gradients(
    optimizer: optax.GradientTransformation,
    state: TrainState,
    grads: Any,
    position: jax.Array | None = None,
) -> tuple[TrainState, jax.Array]:
    """Returns the state after one optimiser step, and the norm of the change in the parameters.

    `position` is the step's position in the run (`optimizer.set_schedule_position`).
    """
    opt_state = set_schedule_position(state.opt_state, position)
    updates, opt_state = optimizer.update(grads, opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    new = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
    return new, optax.tree.norm(updates)


def replace_nonfinite(metrics: Sums) -> Sums:
    """Replaces non-finite metrics by 0, so that a skipped step leaves a valid log line."""
    return {name: jnp.where(jnp.isfinite(value), value, 0.0) for name, value in metrics.items()}


def compile_update(
    update: Callable[..., tuple[TrainState, Sums]], shardings: TrainState | None
) -> Callable[..., tuple[TrainState, Sums]]:
    """Compiles (state, batch, ...) -> (state, metrics); the state is donated.

    The shardings of the new state are fixed, because the second step must find the state on the
    same devices as the first step.
    """
    return jax.jit(update, donate_argnums=0, out_shardings=(shardings, None))
