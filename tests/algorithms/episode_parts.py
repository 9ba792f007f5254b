"""Compiled versions of all advantage estimators, and episodes with inserted tokens."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.algorithms import advantages, gae
from agentgym_jax.algorithms.episode_sums import Episodes

_TRACE = {"turn_discount": 1.0, "gae_lambda": 0.9}
# Options of each advantage estimator, for tests whose result does not depend on them.
OPTIONS = {
    "group_relative": dict(std_normalize=True),
    "monte_carlo": dict(discount=1.0, turn_discount=1.0),
    "batch_normalized_returns": dict(discount=1.0, turn_discount=1.0),
    "group_in_group": dict(step_weight=1.0, turn_discount=0.95, std_normalize=True),
}


def with_options(name):
    """Returns the function `advantages.NAME` with its options from OPTIONS."""
    return functools.partial(getattr(advantages, name), **OPTIONS.get(name, {}))


_FUNCTIONS = {
    "group_relative": with_options("group_relative"),
    "centred": functools.partial(advantages.group_relative, std_normalize=False),
    "leave_one_out": advantages.leave_one_out,
    "monte_carlo": with_options("monte_carlo"),
    "batch_normalized_returns": with_options("batch_normalized_returns"),
    "group_mean_batch_normalized": advantages.group_mean_batch_normalized,
    "group_in_group": with_options("group_in_group"),
    "group_in_group_centred": functools.partial(
        with_options("group_in_group"), std_normalize=False
    ),
    "token_gae": functools.partial(gae.token_gae, discount=1.0, normalize=False, **_TRACE),
    "token_gae_normalised": functools.partial(
        gae.token_gae, discount=1.0, normalize=True, **_TRACE
    ),
    "turn_gae": functools.partial(gae.turn_gae, normalize=False, **_TRACE),
    "turn_gae_normalised": functools.partial(gae.turn_gae, normalize=True, **_TRACE),
}
# Each estimator is compiled once per shape; otherwise every call would compile its scan again.
ESTIMATORS = {name: jax.jit(function) for name, function in _FUNCTIONS.items()}


@functools.cache
def _compiled(name, options):
    return jax.jit(getattr(advantages, name), static_argnames=options)


def estimate(name, made, **options):
    """Calls `advantages.NAME(made, **options)`, compiled once per shape."""
    options = OPTIONS.get(name, {}) | options
    return _compiled(name, tuple(options))(made, **options)


# Estimators whose statistics are taken within a group, so rows of other groups have no effect.
GROUPED = (
    "group_relative",
    "centred",
    "leave_one_out",
    "group_in_group",
    "group_in_group_centred",
)


def with_observations(made, positions):
    """Returns the same episodes with tokens inserted before these positions in every row."""

    def insert(values, filling):
        return jnp.asarray(np.insert(np.asarray(values), positions, filling, axis=1))

    return Episodes(
        reward_BT=insert(made.reward_BT, 0.0),
        action_mask_BT=insert(made.action_mask_BT, False),
        valid_B=made.valid_B,
        turn_BT=insert(made.turn_BT, -1),
        anchor_BT=insert(made.anchor_BT, -1),
        value_BT=insert(made.value_BT, 100.0),
        group_size=made.group_size,
    )
