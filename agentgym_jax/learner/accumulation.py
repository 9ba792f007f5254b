"""Gradients over many micro-batches, and the optimiser step on their sum."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.learner.optimizer import set_schedule_position
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.mesh.compiler_options import Compiled, compiler_options
from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.layer_scan import WithGradientSum

Metrics = dict[str, jax.Array]
LossFn = Callable[[Any, Any], tuple[jax.Array, tuple[Metrics, Metrics]]]


def accumulate_gradients(
    loss_fn: LossFn, params: Any, batch: Any, used: jax.Array
) -> tuple[jax.Array, Any, Metrics]:
    """Returns the loss of the first `used` micro-batches, its float32 gradient and the metrics.

    Later micro-batches are not computed. If the batch has only one micro-batch, it is always
    computed. The backward pass adds the gradients of layers to their sum in place, so memory holds
    one tree of these gradients.

    Args:
      loss_fn: Maps (params, micro-batch) to (loss, (metrics to add, metrics to maximise)). Metrics
        to maximise are at least 0. It uses the layers of each network once.
      params: Tree of float32 arrays.
      batch: Tree whose leaves have the micro-batches as their first axis.
      used: Number of micro-batches to compute.
    """
    if jax.tree.leaves(batch)[0].shape[0] == 1:
        only = jax.tree.map(lambda x: x[0], batch)
        (total, (added, largest)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, only)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return total, grads, added | largest

    def micro_batch(m):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, m, 0, False), batch)

    def loss_with_sums(params, sums, batch):
        return loss_fn(_attach_sums(params, sums), batch)

    grad_fn = jax.value_and_grad(loss_with_sums, argnums=(0, 1), has_aux=True)

    def step(m, carry):
        total, sums, added, largest = carry
        (value, (new, new_largest)), (grads, new_sums) = grad_fn(params, sums, micro_batch(m))
        grads = jax.tree.map_with_path(_add_unless_summed, sums, grads, new_sums)
        added = jax.tree.map(jnp.add, added, new)
        return total + value, grads, added, jax.tree.map(jnp.maximum, largest, new_largest)

    loss, (added, largest) = jax.eval_shape(lambda: loss_fn(params, micro_batch(0)))
    first = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (loss, params, added, largest))
    with jax.named_scope("micro_batches"):
        total, grads, added, largest = jax.lax.fori_loop(0, used, step, first)
    return total, grads, added | largest


def _attach_sums(params: Any, sums: Any) -> Any:
    """Replaces the layers of every network in a tree of weights by `WithGradientSum`."""
    if not isinstance(params, dict):
        return params
    return {
        name: WithGradientSum(part, sums[name])
        if name == "layers"
        else _attach_sums(part, sums[name])
        for name, part in params.items()
    }


def _add_unless_summed(
    path: Any, total: jax.Array, grad: jax.Array, summed: jax.Array
) -> jax.Array:
    """Returns the new sum of gradients; the backward pass has `summed` those of layers."""
    is_summed = any(getattr(key, "key", None) == "layers" for key in path)
    return summed if is_summed else total + grad.astype(jnp.float32)


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
    new = dataclasses.replace(state, step=state.step + 1, params=params, opt_state=opt_state)
    return new, optax.tree.norm(updates)


def update_or_skip(
    loss_fn: LossFn,
    params: Any,
    batch: Any,
    used: jax.Array,
    state: TrainState,
    apply: Callable[[Any], tuple[TrainState, jax.Array]],
    grad_limit: chex.Numeric = jnp.inf,
    is_allowed: Callable[[Metrics], chex.Numeric] = lambda found: True,
) -> tuple[TrainState, Metrics]:
    """Applies the gradient of the first `used` micro-batches, or returns `state` unchanged.

    A step is skipped if its loss or gradient is not finite, if the norm of the gradient is above
    `grad_limit`, if the metric `weight` of `loss_fn` is 0, or if `is_allowed` is False for these
    metrics. `apply` maps the gradient to the next state and the norm of the change. Other arguments
    are as in `accumulate_gradients`.

    Returns:
      The state, and the metrics of `loss_fn` together with `loss`, `grad_norm`, `update_norm`,
      `skipped` and `nonfinite`.
    """
    total, grads, found = accumulate_gradients(loss_fn, params, batch, used)
    grad_norm = optax.tree.norm(grads)
    is_finite = jnp.isfinite(total) & jnp.isfinite(grad_norm)
    is_sound = is_finite & (grad_norm <= grad_limit) & (found["weight"] > 0) & is_allowed(found)
    nothing = jnp.zeros((), jnp.float32)
    new_state, update_norm = jax.lax.cond(is_sound, lambda: apply(grads), lambda: (state, nothing))
    return new_state, found | {
        "loss": total,
        "grad_norm": grad_norm,
        "update_norm": update_norm,
        "skipped": 1.0 - is_sound.astype(jnp.float32),
        "nonfinite": 1.0 - is_finite.astype(jnp.float32),
    }


def compile_update(
    update: Callable[..., tuple[TrainState, Metrics]],
    shardings: TrainState | None,
    layout: Layout | None,
) -> Compiled[..., tuple[TrainState, Metrics]]:
    """Compiles (state, batch, ...) -> (state, metrics) for the layout's chip; donates the state.

    Metrics that are not finite become 0, so that the log of a skipped step is valid JSON. The new
    state has the given shardings, so that the next step needs no second compilation.
    """

    def finite_update(*args, **options):
        state, metrics = update(*args, **options)
        return state, {k: jnp.where(jnp.isfinite(v), v, 0.0) for k, v in metrics.items()}

    return jax.jit(
        finite_update,
        donate_argnums=0,
        out_shardings=(shardings, None),
        compiler_options=compiler_options("update", layout),
    )
