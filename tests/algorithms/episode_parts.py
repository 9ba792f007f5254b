"""Episodes written as a picture, and every estimator of the package."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.algorithms import advantages, gae
from agentgym_jax.algorithms.episodes import Episodes

_TRACE = {"turn_discount": 1.0, "gae_lambda": 0.9}
_FUNCTIONS = {
    "group_relative": advantages.group_relative,
    "centred": functools.partial(advantages.group_relative, std_normalize=False),
    "leave_one_out": advantages.leave_one_out,
    "monte_carlo": advantages.monte_carlo,
    "batch_normalized_returns": advantages.batch_normalized_returns,
    "group_mean_batch_normalized": advantages.group_mean_batch_normalized,
    "group_in_group": advantages.group_in_group,
    "group_in_group_centred": functools.partial(advantages.group_in_group, std_normalize=False),
    "token_gae": functools.partial(gae.token_gae, discount=1.0, normalize=False, **_TRACE),
    "token_gae_normalised": functools.partial(
        gae.token_gae, discount=1.0, normalize=True, **_TRACE
    ),
    "turn_gae": functools.partial(gae.turn_gae, normalize=False, **_TRACE),
    "turn_gae_normalised": functools.partial(gae.turn_gae, normalize=True, **_TRACE),
}
# Compiled once a shape; without it every call would compile its scan again.
ESTIMATORS = {name: jax.jit(function) for name, function in _FUNCTIONS.items()}


@functools.cache
def _compiled(name, options):
    return jax.jit(getattr(advantages, name), static_argnames=options)


def estimate(name, made, **options):
    """advantages.NAME(made, **options), compiled once a shape."""
    return _compiled(name, tuple(options))(made, **options)


# Statistics within a group only: rows of other groups do not matter.
GROUPED = (
    "group_relative",
    "centred",
    "leave_one_out",
    "group_in_group",
    "group_in_group_centred",
)


def episodes(returns, *, group_size, T=5, actions=slice(1, 4), valid=None, value=0.0):
    """One row an episode of one turn; the whole return on the last action token.

    All rows of a group start from the same anchor state.
    """
    B = len(returns)
    shape = (B, T)
    mask_BT = np.zeros(shape, bool)
    mask_BT[:, actions] = True
    reward_BT = np.zeros(shape, np.float32)
    reward_BT[:, actions.stop - 1] = returns
    task_B1 = np.arange(B)[:, None] // group_size
    return Episodes(
        reward_BT=jnp.asarray(reward_BT),
        action_mask_BT=jnp.asarray(mask_BT),
        valid_B=jnp.ones(B, bool) if valid is None else jnp.asarray(valid),
        turn_BT=jnp.asarray(np.where(mask_BT, 0, -1).astype(np.int32)),
        anchor_BT=jnp.asarray(np.where(mask_BT, task_B1, -1).astype(np.int32)),
        value_BT=jnp.full(shape, value, jnp.float32),
        group_size=group_size,
    )


def drawn(pictures, rewards, *, group_size, anchors=None, valid=None):
    """Rows like `..00.11`: a digit is an action token of that turn, a dot is none.

    Args:
      pictures: one a row, of equal length.
      rewards: per row {position: reward}.
      group_size: R.
      anchors: per row the anchor of each turn; without them every turn has its own.
      valid: per row.
    """
    B, T = len(pictures), len(pictures[0])
    turn_BT = np.array([[-1 if c == "." else int(c) for c in row] for row in pictures], np.int32)
    reward_BT = np.zeros((B, T), np.float32)
    for row, of_row in enumerate(rewards):
        for position, reward in of_row.items():
            reward_BT[row, position] = reward
    anchor_BT = np.where(turn_BT >= 0, turn_BT + T * np.arange(B)[:, None], -1).astype(np.int32)
    if anchors is not None:
        for row, of_row in enumerate(anchors):
            for turn, anchor in enumerate(of_row):
                anchor_BT[row, turn_BT[row] == turn] = anchor
    return Episodes(
        reward_BT=jnp.asarray(reward_BT),
        action_mask_BT=jnp.asarray(turn_BT >= 0),
        valid_B=jnp.ones(B, bool) if valid is None else jnp.asarray(valid),
        turn_BT=jnp.asarray(turn_BT),
        anchor_BT=jnp.asarray(anchor_BT),
        value_BT=jnp.zeros((B, T), jnp.float32),
        group_size=group_size,
    )


def random_episodes(seed, *, tasks=3, group_size=4, turns=3, T=24):
    """Several turns of random lengths, rewards on their last tokens, shared anchors, one failure."""
    rng = np.random.default_rng(seed)
    pictures, rewards, anchors = [], [], []
    for row in range(tasks * group_size):
        text, of_row = ".", {}
        for turn in range(int(rng.integers(1, turns + 1))):
            text += str(turn) * int(rng.integers(1, 4))
            of_row[len(text) - 1] = float(np.round(rng.normal(), 2))
            text += "." * int(rng.integers(0, 4))
        pictures.append(text.ljust(T, "."))
        rewards.append(of_row)
        task = row // group_size
        anchors.append([8 * task + int(rng.integers(0, 3)) for _ in of_row])
    valid = np.ones(tasks * group_size, bool)
    valid[rng.integers(tasks * group_size)] = False
    return drawn(pictures, rewards, group_size=group_size, anchors=anchors, valid=valid)


def with_observations(made, positions):
    """The same episodes with tokens inserted before some positions, all alike in every row."""

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
