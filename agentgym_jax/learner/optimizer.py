"""Optimisers for the stacked parameter tree of `models.decoder`, and their learning rates."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import chex
import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.learner.compact_adam import MOMENTS, scale_by_compact_adam

NAMES = ("adamw", "muon")
SCHEDULES = ("constant", "cosine", "linear")

# Input axes (`reduction_axis`) and output axes of the kernels inside the layers, stacked as
# [L, ...]. The layer axis L is in neither, so the kernel of each layer is a separate matrix.
_TO_HEADS = MuonDimensionNumbers(reduction_axis=(1,), output_axis=(2, 3))  # L D N H
_PLAIN = MuonDimensionNumbers(reduction_axis=(1,), output_axis=(2,))  # L D F or L F D
MATRICES = dict.fromkeys(("q_kernel", "k_kernel", "v_kernel"), _TO_HEADS) | {
    "o_kernel": MuonDimensionNumbers(reduction_axis=(1, 2), output_axis=(3,)),  # L N H D
    **dict.fromkeys(("gate_kernel", "up_kernel", "down_kernel"), _PLAIN),
    # Gated delta nets (models/hybrid.py).
    **dict.fromkeys(("qkv_kernel", "beta_kernel", "decay_kernel"), _PLAIN),  # L D C or L D N
    "z_kernel": _TO_HEADS,
    "out_kernel": MuonDimensionNumbers(reduction_axis=(1, 2), output_axis=(3,)),  # L N P D
    # Adapters (models/lora.py); r is the rank.
    **dict.fromkeys(
        [f"{t}_lora_a" for t in ("q", "k", "v", "gate", "up", "down")], _PLAIN
    ),  # L D r
    "o_lora_a": MuonDimensionNumbers(reduction_axis=(1, 2), output_axis=(3,)),  # L N H r
    **dict.fromkeys([f"{t}_lora_b" for t in "qkv"], _TO_HEADS),  # L r N H
    **dict.fromkeys([f"{t}_lora_b" for t in ("o", "gate", "up", "down")], _PLAIN),  # L r D
}


def learning_rate_at(
    step: chex.Numeric,
    *,
    learning_rate: float,
    schedule: str,
    warmup_steps: int,
    total_steps: int,
    final_fraction: float,
) -> jax.Array:
    """Returns the learning rate of the update that follows `step` planned updates.

    The rate rises linearly in the warm-up; the first update has 1 / warmup_steps of the peak. Then
    it follows the schedule down to `final_fraction * learning_rate` at `total_steps` and remains
    constant. `step` may be traced. Other arguments are as in `make_optimizer`.
    """
    if schedule not in SCHEDULES:
        raise ValueError(
            f"learning rate schedule is {schedule!r}, expected one of {', '.join(SCHEDULES)}"
        )
    if schedule != "constant" and total_steps <= warmup_steps:
        raise ValueError(
            f"a {schedule} schedule of {total_steps} steps ends within its warm-up of "
            f"{warmup_steps}: raise total_steps or lower warmup_steps"
        )
    # whole numbers above 2**31 do not fit JAX's integers
    learning_rate, final_fraction = float(learning_rate), float(final_fraction)
    step = jnp.asarray(float(step) if isinstance(step, int) else step, jnp.float32)
    warmup = jnp.minimum(1.0, (step + 1.0) / float(max(warmup_steps, 1)))
    if schedule == "constant":
        return learning_rate * warmup
    done = jnp.clip((step - float(warmup_steps)) / float(total_steps - warmup_steps), 0.0, 1.0)
    falling = 1.0 - done if schedule == "linear" else 0.5 * (1.0 + jnp.cos(jnp.pi * done))
    return learning_rate * warmup * (final_fraction + (1.0 - final_fraction) * falling)


def get_learning_rate(options: Mapping[str, Any], updates: int, *, total_steps: int) -> float:
    """Returns `learning_rate_at` step `updates`; `options` are those of `make_optimizer`."""
    keys = ("learning_rate", "schedule", "warmup_steps", "final_fraction")
    given = {key: options[key] for key in keys}
    return float(learning_rate_at(updates, total_steps=total_steps, **given))


def set_schedule_position(opt_state: Any, position: jax.Array | None) -> Any:
    """Sets the step count of the learning-rate schedules, so that skipped updates count as well.

    `position` is the number of updates planned in the run before this one; None keeps the count of
    applied updates.
    """
    if position is None:
        return opt_state
    return optax.tree.set(
        opt_state,
        lambda path, _: getattr(path[-1], "tuple_name", "") == "ScaleByScheduleState",
        count=position,
    )


def layer_matrices(params: Any) -> Any:
    """Returns the MuonDimensionNumbers of matrices inside layers; None for other parameters."""
    return jax.tree.map_with_path(lambda path, _: MATRICES.get(path[-1].key), params)


def is_layer_matrix(params: Any) -> Any:
    """Returns a tree that is True for matrices inside layers, to which weight decay applies."""
    return jax.tree.map_with_path(lambda path, _: path[-1].key in MATRICES, params)


def is_large(params: Any) -> Any:
    """Returns a tree that is True for matrices and embeddings, whose moments may be compact."""

    def find(path, x):
        return x.ndim > 1 and path[-1].key in (*MATRICES, "embedding", "kernel")

    return jax.tree.map_with_path(find, params)


def _compact_adamw(
    rate: optax.Schedule, b1: float, b2: float, eps: float, weight_decay: float, moments: str
) -> optax.GradientTransformation:
    """Returns `optax.adamw` with compact moments of large parameters and float32 moments of others."""
    kinds = {
        True: scale_by_compact_adam(b1, b2, eps, moments),
        False: optax.scale_by_adam(b1, b2, eps),
    }
    return optax.chain(
        optax.partition(kinds, is_large),
        optax.add_decayed_weights(weight_decay, is_layer_matrix),
        optax.scale_by_learning_rate(rate),
    )


def make_optimizer(
    *,
    name: Annotated[str, OneOf(NAMES)],
    learning_rate: Annotated[float, Range(0)],
    schedule: Annotated[str, OneOf(SCHEDULES)],
    warmup_steps: Annotated[int, Range(0, unit="optimiser steps")],
    total_steps: int,
    final_fraction: Annotated[float, Range(0, 1)],
    moments: Annotated[str, OneOf(MOMENTS)],
    b1: Annotated[float, Range(0, below=1)] = 0.9,
    b2: Annotated[float, Range(0, below=1)] = 0.999,
    eps: Annotated[float, Range(above=0)] = 1e-8,
    weight_decay: Annotated[float, Range(0)] = 0.0,
    max_grad_norm: Annotated[float, Range(above=0)] | None = 1.0,
    adam_learning_rate: Annotated[float, Range(0)] | None = None,
    momentum: Annotated[float, Range(0, below=1)] = 0.95,
) -> optax.GradientTransformation:
    """Returns AdamW, or Muon for the matrices of the layers and AdamW for all other parameters.

    Matrices are recognised by name, because in the stacked tree even a norm has two axes [L, D].
    Sources: AdamW arXiv:1711.05101; Muon, Jordan 2024, kellerjordan.github.io/posts/muon.

    Args:
      name: Optimiser: `adamw` or `muon`.
      learning_rate: Peak learning rate; with `muon` the peak for the matrices.
      schedule: Shape of the learning rate after the warm-up: `constant`, `cosine` or `linear`.
      warmup_steps: Optimiser steps of linear warm-up.
      total_steps: Optimiser steps of the run, including the warm-up.
      final_fraction: Final learning rate as a fraction of the peak.
      moments: Stored type of AdamW's two moments: `float32` (8 bytes per weight), `bfloat16` (4) or
        `int8` (about 2.2). Norms and biases always have float32 moments. `muon` needs `float32`.
      b1: Adam's decay of the first moment.
      b2: Adam's decay of the second moment.
      eps: Adam's epsilon.
      weight_decay: Weight decay of the matrices inside layers; 0 for none.
      max_grad_norm: Global norm to which a larger gradient is scaled down; None for no limit.
      adam_learning_rate: With `muon`, the peak learning rate of all parameters that are not
        matrices, on the same schedule; None uses `learning_rate`. Not allowed for `adamw`.
      momentum: Muon's (Nesterov) momentum.
    """
    if name not in NAMES:
        raise ValueError(f"optimizer name is {name!r}, expected one of {', '.join(NAMES)}")
    if name == "adamw" and adam_learning_rate is not None:
        raise ValueError(
            "adam_learning_rate is the second rate of optimizer name='muon'; "
            "with 'adamw' set learning_rate"
        )
    if max_grad_norm is not None and max_grad_norm <= 0:
        raise ValueError(f"max_grad_norm is {max_grad_norm}, expected a positive norm or None")
    if name != "adamw" and moments != "float32":
        raise ValueError(f"moments={moments!r} needs name='adamw'; with {name!r} set 'float32'")
    shape = functools.partial(
        learning_rate_at,
        schedule=schedule,
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        final_fraction=final_fraction,
    )
    shape(0, learning_rate=learning_rate)  # raises an error if the schedule is invalid
    rate = functools.partial(shape, learning_rate=learning_rate)
    if name == "adamw" and moments != "float32":
        optimizer = _compact_adamw(rate, b1, b2, eps, weight_decay, moments)
    elif name == "adamw":
        optimizer = optax.adamw(
            rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, mask=is_layer_matrix
        )
    else:
        other = learning_rate if adam_learning_rate is None else adam_learning_rate
        optimizer = optax.contrib.muon(
            rate,
            beta=momentum,
            eps=eps,
            weight_decay=weight_decay,
            adam_b1=b1,
            adam_b2=b2,
            adam_learning_rate=functools.partial(shape, learning_rate=other),
            muon_weight_dimension_numbers=layer_matrices,
        )
    if max_grad_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optimizer)
